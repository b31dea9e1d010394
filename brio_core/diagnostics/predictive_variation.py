"""How much predictions change when FC is estimated again within the scan."""

import torch
from torch import Tensor

from brio_core.methods.brio.qualification import qualify


def predictive_variation(
    logits: Tensor, site: Tensor, label: Tensor, stabiliser: float = 1e-8
) -> Tensor:
    """Normalised predictive re-estimation variation, Eq. (app_predictive_variation).

    The logit is treated as the contribution of a single factor: numerator and denominator are the
    D and T of the qualification.

    Parameters
    ----------
    logits : (N, K + 1)
        Position 0 is the full scan.
    site, label : (N,) integers
        Sites counted from 0, each with both classes.
    """
    one_factor = torch.ones(1, 1, dtype=logits.dtype, device=logits.device)
    statistics = qualify(logits[..., None], site, label, one_factor, stabiliser=stabiliser)
    return (statistics.variation / (statistics.scale + stabiliser)).mean()
