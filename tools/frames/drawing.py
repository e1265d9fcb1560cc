"""Draws the lines of a picture as SVG: a sequence diagram, client on the left, broker on the right.

Text stays text, so that it can be searched, selected and read aloud. The width is that of a phone, the colours follow
the reader's light or dark theme, and a background of its own keeps it readable on any page. Widths of words are
estimated, as no font is at hand: a line that might not fit is broken between two of its parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from xml.sax.saxutils import escape

from frames.recording import Kind, Line

WIDTH: Final = 430
CLIENT_X: Final = 22
BROKER_X: Final = WIDTH - 22
TOP: Final = 58
CHARACTER: Final = 6.7
"""Of the text of arrows, on average, in pixels; of code each has `CODE_CHARACTER`."""
CODE_CHARACTER: Final = 7.3
LINE: Final = 16
ROOM: Final = BROKER_X - CLIENT_X - 26

STYLE: Final = """\
.page{fill:#fff;stroke:#d0d7de}
text{font:13px system-ui,-apple-system,"Segoe UI","Helvetica Neue",Arial,sans-serif;fill:#1f2328}
.head{font-weight:600}.who{font-weight:600;text-anchor:middle}.name{font-weight:600}
.call,.result{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.middle{text-anchor:middle}.end{text-anchor:end}.remark{font-style:italic;fill:#59636e}
.life{stroke:#8c959f;stroke-width:1.5}.client{stroke:#0969da;fill:none}.broker{stroke:#1a7f37;fill:none}
.arrow{stroke-width:1.6}.clienthead{fill:#0969da}.brokerhead{fill:#1a7f37}
.callbox{fill:#ddf4ff;stroke:#54aeff}.statebox{fill:#dafbe1;stroke:#4ac26b}.whobox{fill:#f6f8fa;stroke:#8c959f}
.cut{fill:none;stroke:#cf222e;stroke-width:1.6}.cuttext{fill:#cf222e;font-weight:600}.over{fill:#fff}
@media (prefers-color-scheme:dark){
.page{fill:#0d1117;stroke:#3d444d}text{fill:#f0f6fc}.remark{fill:#9198a1}.life{stroke:#656c76}
.client{stroke:#58a6ff}.broker{stroke:#3fb950}.clienthead{fill:#58a6ff}.brokerhead{fill:#3fb950}
.callbox{fill:#0c2d6b;stroke:#1f6feb}.statebox{fill:#04260f;stroke:#238636}.whobox{fill:#151b23;stroke:#656c76}
.cut{stroke:#f85149}.cuttext{fill:#f85149}.over{fill:#0d1117}}
"""


def draw(title: str, lines: list[Line]) -> str:
    """The picture as an SVG document."""
    body: list[str] = []
    y = TOP
    for line in lines:
        y = _draw_line(body, line, y)
    height = y + 14
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"',
            f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="title">',
            f'<title id="title">{escape(title)}</title>',
            f"<style>\n{STYLE}</style>",
            f'<rect class="page" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
            *(f'<line class="life" x1="{x}" y1="40" x2="{x}" y2="{height - 10}"/>' for x in (CLIENT_X, BROKER_X)),
            _who("client", 8),
            _who("broker", WIDTH - 8 - 60),
            *body,
            "</svg>",
            "",
        ]
    )


def _who(name: str, x: int) -> str:
    return (
        f'<rect class="whobox" x="{x}" y="14" width="60" height="26" rx="5"/>'
        f'<text class="who" x="{x + 30}" y="32">{name}</text>'
    )


def _draw_line(body: list[str], line: Line, y: int) -> int:
    """Add a line below `y`; gives where the next one begins."""
    match line.kind:
        case Kind.CALL:
            return _call(body, line.text, y)
        case Kind.RESULT:
            return _result(body, line.text, y)
        case Kind.STATE | Kind.BUFFER:
            return _state(body, line, y)
        case Kind.CUT:
            return _cut(body, line.text, y)
        case Kind.REMARK:
            for words in _broken(line.text.split(" "), " ", ROOM, CHARACTER):
                body.append(f'<text class="remark middle" x="{WIDTH // 2}" y="{y + 14}">{escape(words)}</text>')
                y += LINE
            return y + 8
        case Kind.FROM_CLIENT | Kind.FROM_BROKER:
            return _frame(body, line, y)


def _call(body: list[str], code: str, y: int) -> int:
    rows = list(_broken(code.split(" "), " ", BROKER_X - 40, CODE_CHARACTER))
    width = max(len(row) for row in rows) * CODE_CHARACTER + 16
    height = LINE * len(rows) + 8
    body.append(f'<rect class="callbox" x="8" y="{y + 2}" width="{width:.0f}" height="{height}" rx="4"/>')
    for number, row in enumerate(rows):
        indent = 16 + (14 if number else 0)
        body.append(f'<text class="call" x="{indent}" y="{y + 17 + LINE * number}">{escape(row)}</text>')
    return y + height + 8


def _result(body: list[str], words: str, y: int) -> int:
    for row in _broken(f"↳ {words}".split(" "), " ", ROOM, CODE_CHARACTER):
        width = len(row) * CODE_CHARACTER + 16
        body.append(f'<rect class="over" x="{CLIENT_X + 3}" y="{y - 4}" width="{width:.0f}" height="18"/>')
        body.append(f'<text class="result" x="{CLIENT_X + 12}" y="{y + 10}">{escape(row)}</text>')
        y += LINE
    return y + 8


def _state(body: list[str], line: Line, y: int) -> int:
    width = len(line.text) * CHARACTER + 18
    kind, x = ("statebox", WIDTH - 8 - width) if line.kind is Kind.STATE else ("callbox", 8)
    body.append(f'<rect class="{kind}" x="{x:.0f}" y="{y + 2}" width="{width:.0f}" height="24" rx="12"/>')
    body.append(f'<text class="middle" x="{x + width / 2:.0f}" y="{y + 18}">{escape(line.text)}</text>')
    return y + 34


def _cut(body: list[str], words: str, y: int) -> int:
    steps = " ".join(f"l 8 {6 if number % 2 else -6}" for number in range((BROKER_X - CLIENT_X) // 8))
    body.append(f'<path class="cut" d="M {CLIENT_X} {y + 12} {steps}"/>')
    width = len(words) * CHARACTER + 24
    body.append(
        f'<rect class="over" x="{(WIDTH - width) / 2:.0f}" y="{y}" width="{width:.0f}" height="22"/>'
        f'<text class="cuttext middle" x="{WIDTH // 2}" y="{y + 15}">{escape(words)}</text>'
    )
    return y + 34


def _frame(body: list[str], line: Line, y: int) -> int:
    from_client = line.kind is Kind.FROM_CLIENT
    parts = [line.text + ("  " if line.details else ""), *(f"{detail}, " for detail in line.details[:-1])]
    parts += line.details[-1:]
    rows = list(_broken(parts, "", ROOM, CHARACTER))
    for number, row in enumerate(rows):
        words = escape(row.rstrip())
        if number == 0:
            name, rest = escape(line.text), escape(row[len(line.text) :].strip())
            words = f'<tspan class="name">{name}</tspan>' + (f'<tspan dx="6">{rest}</tspan>' if rest else "")
        body.append(f'<text class="middle" x="{WIDTH // 2}" y="{y + 13}">{words}</text>')
        y += LINE
    side = "client" if from_client else "broker"
    begin, end = (CLIENT_X, BROKER_X) if from_client else (BROKER_X, CLIENT_X)
    back = -9 if from_client else 9
    body.append(f'<line class="arrow {side}" x1="{begin}" y1="{y + 5}" x2="{end + back}" y2="{y + 5}"/>')
    body.append(f'<path class="{side}head" d="M {end} {y + 5} l {back} -5 v 10 z"/>')
    return y + 17


def _broken(parts: list[str], between: str, room: float, character: float) -> Iterator[str]:
    """Join parts into rows of at most `room` pixels; a part that is longer has a row of its own."""
    row = ""
    for part in parts:
        joined = f"{row}{between}{part}" if row else part
        if row and len(joined.rstrip()) * character > room:
            yield row
            joined = part
        row = joined
    yield row
