"""Training on a machine without the workflow."""
