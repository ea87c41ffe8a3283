"""A figure's SVG file as a part of the page: nothing in it can clash, run or reach the network."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from shapeshift.errors import ShapeshiftError
from shapeshift.report.markup import Html

_SVG = "{http://www.w3.org/2000/svg}"
_XLINK_HREF = "{http://www.w3.org/1999/xlink}href"
_SHAPES = {"path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "image"}
_TEXT = {"text", "tspan"}
_GROUPS = {"svg", "g", "defs", "symbol", "use", "clipPath", "mask", "pattern", "marker"}
_PAINT = {"linearGradient", "radialGradient", "stop"}
_DRAWN = _SHAPES | _TEXT | _GROUPS | _PAINT
_REFERENCE = re.compile(r"url\(\s*(['\"]?)(.*?)\1\s*\)")
_LENGTH = re.compile(r"[\d.]+(pt|px|in|mm|cm)")
_RASTER = re.compile(r"data:image/(png|jpeg);base64,")

# What matplotlib's style sheet sets, for every element: on the page it would be every other
# figure's as well.
_LINES = "stroke-linejoin: round; stroke-linecap: butt"


def inline_svg(path: Path, prefix: str, title: str, alt: str) -> Html:
    """Return a figure as markup: one image to a screen reader, whatever it is drawn of.

    Shapes, text and raster images are kept, and of references those within the figure.

    Args:
        path: an SVG file.
        prefix: begins all identifiers, so that those of several figures differ.
        title: its name, which a pointing device shows.
        alt: what is to be seen.

    Raises:
        ShapeshiftError: the file cannot be read, or holds no SVG.
    """
    try:
        root = ElementTree.fromstring(path.read_bytes())
    except OSError as error:
        raise ShapeshiftError(f"cannot be read: {error.strerror}", path=path) from error
    except ElementTree.ParseError as error:
        raise ShapeshiftError(f"not an SVG file: {error}", path=path) from error
    if root.tag != f"{_SVG}svg":
        raise ShapeshiftError(f"not an SVG file: its root is {root.tag!r}", path=path)
    try:
        _keep_drawing(root)
        return _markup(root, prefix, title, alt)
    except RecursionError as error:
        raise ShapeshiftError("elements are nested too deeply", path=path) from error


def _markup(root: ElementTree.Element, prefix: str, title: str, alt: str) -> Html:
    for part in root.iter():
        part.attrib = _attributes(part.attrib, prefix)
        part.tag = part.tag.removeprefix(_SVG)
    # The page scales the figure from its own width, so that text has one size in all of them.
    width = root.attrib.pop("width", "")
    root.attrib.pop("height", None)
    style = f"{_LINES}; --width: {width}" if _LENGTH.fullmatch(width) else _LINES
    root.attrib |= {"role": "img", "aria-label": alt, "style": style}
    name = ElementTree.Element("title")
    name.text = title
    root.insert(0, name)
    return Html(ElementTree.tostring(root, encoding="unicode"))


def _keep_drawing(element: ElementTree.Element) -> None:
    for child in list(element):
        # The tag of a comment is a function.
        if isinstance(child.tag, str) and child.tag.removeprefix(_SVG) in _DRAWN:
            _keep_drawing(child)
        else:
            element.remove(child)


def _attributes(given: dict[str, str], prefix: str) -> dict[str, str]:
    kept = {}
    for name, value in given.items():
        name = "href" if name == _XLINK_HREF else name
        if name == "href":
            if value.startswith("#"):
                kept[name] = f"#{prefix}-{value[1:]}"
            elif _RASTER.match(value):
                kept[name] = value
        elif name == "id":
            kept[name] = f"{prefix}-{value}"
        elif not name.lower().startswith("on") and "{" not in name:
            kept[name] = _REFERENCE.sub(lambda found: _within(found[2], prefix), value)
    return kept


def _within(target: str, prefix: str) -> str:
    """Return a reference to a part of the figure; to anything else, `none`."""
    return f"url(#{prefix}-{target[1:]})" if target.startswith("#") else "none"
