"""CORE, reimplemented from its abstract: edges that sites agree on, as nodes of a line graph."""

from brio_core.methods.core.method import Core

__all__ = ["Core"]
