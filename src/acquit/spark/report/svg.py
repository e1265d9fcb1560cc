"""A drawing of matplotlib as a part of a page: without a size, without ids, and in the colours of the page's theme.

matplotlib writes an SVG document; a page wants a picture that takes the width of its column, follows the reader's
light or dark theme, and shares its page with fifty others. So a drawing uses the colours of `THEME`, which nobody would
choose, and here each becomes a variable of the page's style sheet. The template writes the element around it, with
title and description. A drawing has axes alone: no text that a user gave is in it.
"""

from __future__ import annotations

import io
import re
from typing import Final

from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

THEME: Final = {f"#0a0a{at:02}": f"var(--{name})" for at, name in enumerate("muted grid s1 s2 s3 s4 s5 s6".split())}
MUTED, GRID, *SERIES = THEME
_LEFT_OUT: Final = re.compile(r' (?:id|clip-path)="[^"]*"|\bfont[a-z-]*:[^;"]*;?\s?|\s+(?=["<])|\n')
"""Parts of an SVG to leave out: only clips refer to an id, and all is drawn inside its axes; the page has fonts."""
_COLOUR: Final = re.compile("|".join(THEME))
_LONG_NUMBER: Final = re.compile(r"(?<![>\d.-])-?\d+\.\d{2,}")
"""Number of two decimals or more in an attribute, and not in a text."""


def inline(figure: Figure) -> Markup:
    """Return what belongs inside the page's own `svg` element."""
    written = io.StringIO()
    FigureCanvasSVG(figure).print_svg(written)  # which draws once; `savefig` twice
    # Between what the document says of itself and its clips.
    drawing = re.search("<g .*</g>", written.getvalue(), re.DOTALL)
    assert drawing
    text = _COLOUR.sub(lambda found: THEME[found[0]], _LEFT_OUT.sub("", drawing[0]))
    return Markup(_LONG_NUMBER.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), text))
