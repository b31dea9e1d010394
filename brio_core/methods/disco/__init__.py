"""DiSCO: Sun et al., Diverse and Sparse Mixture-of-Experts for Causal Subgraphs, 2026."""
