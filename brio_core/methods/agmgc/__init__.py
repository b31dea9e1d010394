"""AGMGC (our reading): graphs learnt by data beside correlation graphs."""

from brio_core.methods.agmgc.method import Agmgc

__all__ = ["Agmgc"]
