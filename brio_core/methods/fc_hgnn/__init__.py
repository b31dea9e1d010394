"""FC-HGNN: a graph of every brain, and a graph of the population of subjects."""

from brio_core.methods.fc_hgnn.method import FcHgnn

__all__ = ["FcHgnn"]
