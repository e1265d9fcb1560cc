"""What matplotlib draws, as a part of a page: no size and no colours of its own, and names that are its alone.

matplotlib writes an SVG document; a page wants a picture that takes the width of its column, follows the reader's
light or dark theme, is read out by a screen reader, and shares its page with fifty others. So the drawing uses the
colours of `THEME`, which nobody would choose, and here each becomes a variable of the page's style sheet; ids get a
prefix; the size goes, the viewBox stays; a title and a description come in.
"""

from __future__ import annotations

import io
import re
from typing import Final
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

INK: Final = "#010101"
MUTED: Final = "#020202"
GRID: Final = "#030303"
SERIES: Final = ("#0a0a01", "#0a0a02", "#0a0a03", "#0a0a04", "#0a0a05", "#0a0a06")
THEME: Final = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    **{colour: f"var(--s{number})" for number, colour in enumerate(SERIES, 1)},
}

_COLOUR: Final = re.compile("|".join(THEME))
_FONT: Final = re.compile(r"font(?:-family)?:[^;]*;?")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)px")
_LONG_NUMBER: Final = re.compile(r"-?\d+\.\d{2,}")
_LINK: Final = re.compile(r"url\(#([^)]+)\)")
_XLINK: Final = "{http://www.w3.org/1999/xlink}href"
_LEFT_OUT: Final = frozenset(("metadata", "style"))


def inline(figure: Figure, name: str, title: str, description: str) -> Markup:
    """The figure as an element `svg`. `name` is unique in the page and fit for an id; the texts may be anything."""
    written = io.StringIO()
    FigureCanvasSVG(figure).print_svg(written, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = written.getvalue()
    # matplotlib's own output, not somebody's document.
    root = ElementTree.fromstring(text[text.index("<svg") :])
    _own(root, name)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.attrib |= {"role": "img", "class": "plot", "aria-labelledby": f"{name}-t", "aria-describedby": f"{name}-d"}
    for tag, content in (("desc", description), ("title", title)):
        element = ElementTree.Element(tag, {"id": f"{name}-{tag[0]}"})
        element.text = content
        root.insert(0, element)
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # texts were escaped just now


def _own(element: ElementTree.Element, name: str) -> None:
    element.tag = element.tag.rpartition("}")[2]
    element.tail = None
    if element.text is not None and not element.text.strip():
        element.text = None
    attributes = {}
    for key, value in element.attrib.items():
        if key == "id":
            value = f"{name}-{value}"
        elif key == _XLINK:
            key, value = "href", f"#{name}-{value.removeprefix('#')}"
        elif key == "style":
            value = _styled(value, text=element.tag == "text")
        attributes[key] = _LONG_NUMBER.sub(_short, _LINK.sub(rf"url(#{name}-\1)", value))
    element.attrib.clear()
    element.attrib.update(attributes)
    for child in list(element):
        if child.tag.rpartition("}")[2] not in _LEFT_OUT:
            _own(child, name)
        else:
            element.remove(child)
    if element.tag == "g" and not re.search("clip", " ".join(element.attrib)):
        # Groups are named by what matplotlib calls them; nobody refers to that.
        element.attrib.pop("id", None)


def _styled(style: str, *, text: bool) -> str:
    if text:
        size = _SIZE.search(style)
        style = f"font-size: {size[1] if size else 9}px; {_FONT.sub('', style.replace('font-size', 'x-size'))}"
        style = re.sub(r"x-size:[^;]*;?", "", style)
    return " ".join(_COLOUR.sub(lambda found: THEME[found[0]], style).split())


def _short(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")
