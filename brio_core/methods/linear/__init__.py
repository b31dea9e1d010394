"""What the linear rows share: exact and iterative solvers, tangent space."""
