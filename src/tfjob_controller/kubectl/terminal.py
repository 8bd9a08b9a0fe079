"""What programs print, on its way to a person's terminal: colours pass, whatever else rules a terminal does not.

Only where somebody looks; a file or a pipe gets every byte as it is.
"""

from __future__ import annotations

import re

from tfjob_controller.util.text import CONTROL_CHARACTERS, escape

# Escape sequences but for colours. Tabs and carriage returns stay: progress is shown with them.
_RULES = re.compile(rf"\x1b(?!\[[0-9;:]*m)|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f{CONTROL_CHARACTERS}]")
# Bytes of no encoding are nothing to a terminal: they go through as they are.
_ENCODING = ("utf-8", "surrogateescape")


def harmless(line: bytes) -> bytes:
    """The line with such bytes to be seen, by their numbers."""
    return _RULES.sub(lambda match: escape(match[0]), line.decode(*_ENCODING)).encode(*_ENCODING)


def last_written(line: bytes) -> bytes:
    """What is left of a line that its program wrote over: a prefix before it would be written over, too."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]
