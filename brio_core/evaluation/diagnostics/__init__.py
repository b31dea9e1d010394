"""Diagnostics of the paper, computed from trained models and stored predictions."""

from brio_core.evaluation.diagnostics.factor_retention import factor_retention
from brio_core.evaluation.diagnostics.predictive_variation import predictive_variation
from brio_core.evaluation.diagnostics.propositions import contrast_stability, variational_form
from brio_core.evaluation.diagnostics.roi_profile import roi_profile
from brio_core.evaluation.diagnostics.site_discrepancy import site_discrepancy
from brio_core.evaluation.mismatch import discordance_rate, mismatch_rates

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
