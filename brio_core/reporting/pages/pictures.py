"""Figures as pages show them."""

from pathlib import Path
from typing import NamedTuple

from brio_core.system.errors import BrioError


class Picture(NamedTuple):
    """The words of a figure, which come from the PNG itself, and its width in pixels."""

    title: str
    caption: str
    alt: str
    section: str
    width: int


def read_picture(path: str | Path) -> Picture:
    """The words of a PNG."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            text, width = image.text, image.width
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; run the rule that makes it first") from None
    except (UnidentifiedImageError, AttributeError):
        raise BrioError(f"{path} is not a PNG; give the .png of a figure") from None
    title = text.get("Title", Path(path).stem)
    caption, alt = text.get("Description", ""), text.get("Comment", title)
    return Picture(title, caption, alt, text.get("Section", "results"), width)
