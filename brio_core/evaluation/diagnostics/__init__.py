"""Diagnostics of the paper, computed from trained models and stored predictions."""

from brio_core.evaluation.diagnostics.factors import (
    contrast_stability,
    factor_retention,
    roi_profile,
    variational_form,
)
from brio_core.evaluation.diagnostics.predictive_variation import predictive_variation
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
