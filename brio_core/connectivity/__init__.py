"""Functional connectivity: kinds, re-estimates and block lengths, graphs.

The names of kinds stand here, so that a plan can be made without torch.
"""

FISHER_Z, LOGARITHM, PARTIAL = "fisher-z", "logarithm", "partial"
KINDS = (FISHER_Z, LOGARITHM, PARTIAL)
