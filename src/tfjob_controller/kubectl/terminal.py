"""What programs print, on its way to a person's terminal: colours pass, whatever else rules a terminal does not.

Only where somebody looks; a file or a pipe gets every byte as it is.
"""

from __future__ import annotations

import re

# Escape sequences but for colours; control characters of seven and, in UTF-8, eight bits; text that runs backwards, and
# lines that only some programs see as such. Tabs and carriage returns stay: progress is shown with them.
_RULES = re.compile(
    rb"\x1b(?!\[[0-9;:]*m)|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]|\xc2[\x80-\x9f]"
    rb"|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
)


def harmless(line: bytes) -> bytes:
    """The line with such bytes to be seen, by their numbers."""
    return _RULES.sub(_seen, line)


def last_written(line: bytes) -> bytes:
    """What is left of a line that its program wrote over: a prefix before it would be written over, too."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _seen(match: re.Match[bytes]) -> bytes:
    return match[0].decode().encode("unicode_escape")
