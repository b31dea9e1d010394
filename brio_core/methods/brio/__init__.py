"""BRIO: factors that are relevant and hold under re-estimation decide what is aligned."""

from brio_core.methods.brio.method import Brio

__all__ = ["Brio"]
