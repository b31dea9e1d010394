"""BrainOOD: Xu et al., Out-of-distribution Generalizable Brain Network Analysis, 2025."""
