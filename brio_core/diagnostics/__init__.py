"""Diagnostics of the paper, computed from trained models and stored predictions."""

from brio_core.diagnostics.factor_retention import factor_retention
from brio_core.diagnostics.predictive_variation import predictive_variation
from brio_core.diagnostics.propositions import contrast_stability, variational_form
from brio_core.diagnostics.roi_profile import roi_profile
from brio_core.diagnostics.site_discrepancy import site_discrepancy
from brio_core.mismatch import discordance_rate, mismatch_rates

__all__ = [
    "contrast_stability",
    "discordance_rate",
    "factor_retention",
    "mismatch_rates",
    "predictive_variation",
    "roi_profile",
    "site_discrepancy",
    "variational_form",
]
