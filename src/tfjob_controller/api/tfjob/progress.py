r"""The regular expressions of `autoscaling.progress.pattern`: their validation, and how they are matched.

Users control both the pattern and the lines, and the threads that match them serve all jobs. So RE2 matches them, whose
time is linear in the length of the line, with little memory for each pattern: the worst pattern takes less than a
millisecond to compile and 20 µs for the longest line. The API server, which uses RE2 too, checks `SHAPE` and `REPEATS`
(hack/generate/rules.py).

RE2 belongs to the extra `operator`. In an installation of the plugin and the client alone, a pattern is only checked
for its length, and the rest is left to the API server and to the controller. Nothing is matched there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tfjob_controller.api.tfjob.types import MAX_PATTERN, TFJobSpec

try:
    import re2
except ImportError:
    re2 = None

if TYPE_CHECKING:
    from re2 import Options

# Lines are truncated to this number of characters.
MAX_LINE = 200
MAX_REPEATS = 3
# In bytes. A pattern with a large {…} needs more, and is refused.
_MAX_MEMORY = 128 * 1024

_ESCAPE = r"\\(?:[tdDsSwW]|[^0-9A-Za-z])"
_IN_SET = rf"(?:{_ESCAPE}|[^\\\[\]])"
_ONE = rf"(?:[^\\()\[\]{{}}*+?|^$]|{_ESCAPE}|\[\^?(?:\]|{_IN_SET}){_IN_SET}*\])"
_TIMES = r"(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})"
_PART = rf"(?:{_ONE}{_TIMES}?|[\^$]|\\[bB])"
SHAPE = rf"^{_PART}*\({_PART}+\){_PART}*$"
# Matches escapes too, so that an escaped * is not counted as a repeat.
REPEATS = r"\\.|[*+?{]"


@cache
def _options() -> Options:
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    return options


@dataclass(frozen=True, slots=True)
class ProgressPattern:
    """A pattern that is allowed."""

    expression: str

    def match(self, line: str) -> str | None:
        """Returns the text of the group; None if the line does not match."""
        found = re2.search(self.expression, line[:MAX_LINE], _options())
        return found[1] if found is not None else None

    def last_match(self, text: str) -> str | None:
        """Returns the match of the last line that matches."""
        matches = (self.match(line) for line in reversed(text.splitlines()))
        return next((match for match in matches if match is not None), None)


def parse_pattern(expression: str) -> ProgressPattern | None:
    """Returns the pattern; None if it is not allowed."""
    if len(expression) > MAX_PATTERN:
        return None
    if re2 is None:
        return ProgressPattern(expression)
    if re2.fullmatch(SHAPE, expression) is None:
        return None
    if repeats_of(expression) > MAX_REPEATS:
        return None
    try:
        # It is cached for `match`.
        re2.compile(expression, _options())
    except re2.error:  # such as [z-a], {5,2} and what needs more than `_MAX_MEMORY`
        return None
    return ProgressPattern(expression)


def pattern_of(spec: TFJobSpec) -> ProgressPattern | None:
    """Returns the pattern of a job; None without one."""
    if spec.autoscaling is None or spec.autoscaling.progress is None:
        return None
    return parse_pattern(spec.autoscaling.progress.pattern)


def repeats_of(pattern: str) -> int:
    return sum(not token.startswith("\\") for token in re2.findall(REPEATS, pattern))
