"""CEPG (our reading): environment-guided learning of features that all sites share."""

from brio_core.methods.cepg.method import Cepg

__all__ = ["Cepg"]
