"""Figures as pages show them: SVG that they hold inline, and the words of a PNG."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as tree

from brio_core.system.errors import BrioError

SVG, LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
# The first is Matplotlib's own; the second is as wide, where the first is not installed.
FONT = "'DejaVu Sans', Verdana, sans-serif"
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_REFERENCE = re.compile(r"(url\(#|^#)([^)]+)")
tree.register_namespace("", SVG)


def simplified(drawn: bytes, words: Mapping[str, Sequence[str]]) -> bytes:
    """What Matplotlib has drawn with two decimals and without what a page does not need.

    ``words`` says for groups of marks, by their ``gid``, what each mark shows under the pointer.
    """
    root = tree.fromstring(drawn)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style"):
                parent.remove(child)
    # What the style said; within a page it would hold for all of it.
    root.attrib |= {"stroke-linejoin": "round", "stroke-linecap": "butt"}
    marks = {node.get("id"): node for node in root.iter(f"{{{SVG}}}g")}
    for name, texts in words.items():
        group = marks[name]
        hidden = {id(node) for defs in group.iter(f"{{{SVG}}}defs") for node in defs.iter()}
        shown = [
            node
            for node in group.iter()
            if node.tag in (f"{{{SVG}}}use", f"{{{SVG}}}path") and id(node) not in hidden
        ]
        # A mark that lies outside the figure is not drawn; then nobody knows which ones are.
        for node, text in zip(shown, texts if len(shown) == len(texts) else ()):
            tree.SubElement(node, f"{{{SVG}}}title").text = text
    _drop_names(root)
    for node in root.iter():
        link = node.attrib.pop(f"{{{LINK}}}href", None)
        for key, value in node.attrib.items():
            node.set(key, " ".join(_NUMBER.sub(_rounded, value).split()))
        if link:
            node.set("href", link)
        if "font" in node.get("style", ""):
            style = re.sub(r"'DejaVu Sans'[^;]*", FONT, node.get("style"))
            node.set("style", style)
        node.text, node.tail = (text if (text or "").strip() else None for text in (node.text, ""))
    _share_styles(root)
    return tree.tostring(root, encoding="utf-8")


def _share_styles(root: tree.Element) -> None:
    """Marks that all look alike get their style from their group, where it stands once."""
    for group in root.iter(f"{{{SVG}}}g"):
        style = group[0].get("style", "") if len(group) else ""
        alike = all(node.get("style") == style for node in group)
        # Opacity is no inherited property.
        if style and alike and "style" not in group.attrib and not re.search(r"\bopacity", style):
            group.set("style", style)
            for node in group:
                del node.attrib["style"]


def inline(svg: str, name: str) -> str:
    """An SVG as part of a page: its names begin with ``name``, so that no two figures share one."""
    root = tree.fromstring(svg)
    for node in root.iter():
        for key, value in node.attrib.items():
            if key == "id":
                node.set(key, f"{name}-{value}")
            elif "#" in value and (key == "href" or "url(#" in value):
                node.set(key, _REFERENCE.sub(rf"\g<1>{name}-\g<2>", value))
    return tree.tostring(root, encoding="unicode").replace(f' xmlns="{SVG}"', "")


def _drop_names(root: tree.Element) -> None:
    """Names that nothing refers to."""
    used = {
        found[1]
        for node in root.iter()
        for key, value in node.attrib.items()
        for found in _REFERENCE.findall(value)
        if key != "id"
    }
    for node in root.iter():
        if node.get("id") not in used:
            node.attrib.pop("id", None)


def _rounded(number: re.Match) -> str:
    # Adding zero takes the sign from one that was rounded to zero.
    return f"{round(float(number[0]), 2) + 0.0:.2f}".rstrip("0").rstrip(".")


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
        raise BrioError(f"{path} does not exist; run the workflow, which makes it") from None
    except (UnidentifiedImageError, AttributeError):
        raise BrioError(f"{path} is not a PNG; give the .png of a figure") from None
    title = text.get("Title", Path(path).stem)
    caption, alt = text.get("Description", ""), text.get("Comment", title)
    return Picture(title, caption, alt, text.get("Section", "results"), width)
