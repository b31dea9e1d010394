"""One run: all folds of a cohort, protocol, variant and seed."""
