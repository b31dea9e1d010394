"""XG-GNN: Qiu et al., Graph Neural Networks with Domain-Generalizable Explainability, 2024."""

from brio_core.methods.xg_gnn.method import XgGnn

__all__ = ["XgGnn"]
