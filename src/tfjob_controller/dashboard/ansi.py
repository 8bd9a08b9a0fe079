"""ANSI colours of a program's output as HTML with classes. Pure. Other sequences are removed, and all text is escaped.

Source: ECMA-48 8.3.117 (SGR). Colours end with the line, as in `kubectl tfjob logs`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from markupsafe import escape

from tfjob_controller.client.text import one_line

# CSI sequences, OSC sequences up to their end, and other two-character escapes.
_SEQUENCE = re.compile(r"\x1b\[([0-9;:]{0,64})([@-~])|\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)|\x1b[@-Z\\^_]?")
_BRIGHT = 60
_MAX_SPANS = 200


@dataclass(frozen=True, slots=True)
class _Style:
    bold: bool = False
    italic: bool = False
    underline: bool = False
    foreground: int = -1
    background: int = -1

    @property
    def classes(self) -> str:
        names = [name for name in ("bold", "italic", "underline") if getattr(self, name)]
        names += [f"fg-{self.foreground}"] if self.foreground >= 0 else []
        names += [f"bg-{self.background}"] if self.background >= 0 else []
        return " ".join(names)


def to_html(line: str) -> str:
    """The line as escaped HTML; its colours are spans with the classes `fg-0` to `fg-15` and `bg-0` to `bg-15`."""
    parts: list[str] = []
    style, at = _Style(), 0
    for match in _SEQUENCE.finditer(line):
        parts.append(_span(line[at : match.start()], style))
        if match[2] == "m" and len(parts) < _MAX_SPANS:
            style = _after(style, match[1])
        at = match.end()
    parts.append(_span(line[at:], style))
    return "".join(parts)


def _span(text: str, style: _Style) -> str:
    if not text:
        return ""
    if not text.isprintable():
        text = "".join(each if each.isprintable() or each == "\t" else one_line(each) for each in text)
    shown = str(escape(text))
    return f'<span class="{style.classes}">{shown}</span>' if style.classes else shown


def _after(style: _Style, parameters: str) -> _Style:
    codes = [int(code) if code else 0 for code in re.split("[;:]", parameters)]
    while codes:
        code = codes.pop(0)
        if code in (38, 48):
            colour = _extended(codes)
            style = replace(style, foreground=colour) if code == 38 else replace(style, background=colour)
        else:
            style = _with(style, code)
    return style


def _extended(codes: list[int]) -> int:
    """Takes the parameters of a colour of the palette of 256; others than the first 16 have no class."""
    form = codes.pop(0) if codes else 0
    count = {5: 1, 2: 3}.get(form, 0)
    taken, codes[:count] = codes[:count], []
    return taken[0] if form == 5 and taken and taken[0] < 16 else -1


def _with(style: _Style, code: int) -> _Style:
    if code == 0:
        return _Style()
    if code in (1, 22):
        return replace(style, bold=code == 1)
    if code in (3, 23):
        return replace(style, italic=code == 3)
    if code in (4, 24):
        return replace(style, underline=code == 4)
    plain = code - _BRIGHT if code >= 90 else code
    bright = 8 if code >= 90 else 0
    if 30 <= plain <= 37:
        return replace(style, foreground=plain - 30 + bright)
    if 40 <= plain <= 47:
        return replace(style, background=plain - 40 + bright)
    return replace(style, foreground=-1) if code == 39 else replace(style, background=-1) if code == 49 else style
