"""Where in the brain the qualified factors pool from."""

from torch import Tensor

from brio_core.methods.brio.qualification import Qualification


def roi_profile(qualification: Qualification, assignment: Tensor) -> Tensor:
    """Qualification-weighted profile (P,) of one model, Eq. (app_qualification_roi_score).

    Parameters
    ----------
    qualification : Qualification
        Its normalised weights are averaged over source-site pairs and classes.
    assignment : (J, P)
        The anchored assignment; rows have mass 1/J, so the profile sums to one.
    """
    weights = qualification.weights.mean((0, 1))
    score = weights @ assignment.to(weights.dtype)
    return score / score.sum()
