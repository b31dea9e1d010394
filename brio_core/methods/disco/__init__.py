"""DiSCO: Sun et al., Diverse and Sparse Mixture-of-Experts for Causal Subgraphs, 2026."""

from brio_core.methods.disco.method import Disco

__all__ = ["Disco"]
