"""BrainOOD: Xu et al., Out-of-distribution Generalizable Brain Network Analysis, 2025."""

from brio_core.methods.brainood.method import BrainOod

__all__ = ["BrainOod"]
