"""Diagnostics of the paper, computed from trained models and stored predictions."""

from brio_core.diagnostics.predictive_variation import predictive_variation
from brio_core.diagnostics.site_discrepancy import site_discrepancy

__all__ = ["predictive_variation", "site_discrepancy"]
