"""Diagnostics of the paper, computed from trained models and stored predictions."""
