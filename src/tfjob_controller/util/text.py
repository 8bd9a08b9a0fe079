"""Text of unknown origin, made safe to print: names, messages, logs and server responses.

Some characters have effects besides being shown. Escape sequences that clear a screen or overwrite a line begin with a
control character, of which there are 32 in ASCII and 32 more of eight bits. Only some programs know two of the line
separators, so that one program reads one line where another reads two. Bidirectional controls change the order in which
a reader sees the text. Such characters are replaced by their escapes.

Each caller decides which ASCII control characters may pass; all others are always escaped.
"""

from __future__ import annotations

import re
from typing import overload

# For a character set in a regular expression: DEL and the eight-bit control characters; line and paragraph separator;
# bidirectional embeddings, overrides and isolates.
CONTROL_CHARACTERS = "\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
# Matches a text without any control character, line breaks included.
PRINTABLE_PATTERN = f"^[^\x00-\x1f{CONTROL_CHARACTERS}]*$"

_LOG_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)(?: |$)")
_LOG_TIME_BYTES = re.compile(_LOG_TIME.pattern.encode())

# What an event or a condition has of a message of another program; that of a scheduler may be longer.
MAX_WORDS = 1000


def escape(character: str) -> str:
    r"""The character as an escape such as `\x1b` or `\u202e`, which has no effect on a terminal."""
    return character.encode("unicode_escape").decode()


def shortened(text: str) -> str:
    """Returns the text on one line of at most `MAX_WORDS` characters."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_WORDS else line[: MAX_WORDS - 1] + "…"


@overload
def without_log_time(line: str) -> str: ...
@overload
def without_log_time(line: bytes) -> bytes: ...
def without_log_time(line: str | bytes) -> str | bytes:
    """The line of a log without the time at its beginning, which the API server writes with `timestamps=true`."""
    if isinstance(line, bytes):
        match = _LOG_TIME_BYTES.match(line)
        return line[match.end() :] if match else line
    found = _LOG_TIME.match(line)
    return line[found.end() :] if found else line
