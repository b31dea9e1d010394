"""Figures as pages show them."""

import base64
from pathlib import Path
from typing import NamedTuple

from brio_core.system.errors import BrioError


class Picture(NamedTuple):
    """A figure; its title, caption, alternative text and section come from the PNG itself."""

    title: str
    caption: str
    alt: str
    section: str
    data: str
    width: int
    height: int


def read_picture(path: str | Path) -> Picture:
    """A PNG with its words."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            text, (width, height) = image.text, image.size
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; run the rule that makes it first") from None
    except (UnidentifiedImageError, AttributeError):
        raise BrioError(f"{path} is not a PNG; give the .png of a figure") from None
    title = text.get("Title", Path(path).stem)
    return Picture(
        title,
        text.get("Description", ""),
        text.get("Comment", title),
        text.get("Section", "results"),
        base64.b64encode(Path(path).read_bytes()).decode(),
        width,
        height,
    )
