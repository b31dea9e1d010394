"""XG-GNN: Qiu et al., Graph Neural Networks with Domain-Generalizable Explainability, 2024."""
