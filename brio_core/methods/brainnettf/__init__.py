"""BrainNetTF: Kan et al., Brain Network Transformer, NeurIPS 2022."""

from brio_core.methods.brainnettf.method import BrainNetTf

__all__ = ["BrainNetTf"]
