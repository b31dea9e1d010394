"""Hemispheres of the regions of atlases whose series come without them."""

from brio_core.errors import BrioError

# AAL alternates left and right; the last eight regions, the vermis, lie between them.
HEMISPHERES = {"aal116": ("L", "R") * 54 + ("n/a",) * 8}


def known_hemispheres(atlas: str, expected: int) -> tuple[str, ...]:
    """The hemispheres of an atlas, in the order of its regions."""
    found = HEMISPHERES[atlas]
    if len(found) != expected:
        raise BrioError(
            f"rois.hemispheres is {atlas!r}, an atlas of {len(found)} regions, but rois.expected "
            f"is {expected}; correct one of them"
        )
    return found
