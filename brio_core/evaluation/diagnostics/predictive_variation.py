"""How much predictions change when FC is estimated again within the scan."""

from torch import Tensor

from brio_core.methods.brio.qualification import site_class_statistics


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
    statistics = site_class_statistics(logits[..., None], site, label)
    return (statistics.variation / (statistics.scale + stabiliser)).mean()
