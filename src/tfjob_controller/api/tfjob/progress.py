r"""`autoscaling.progress.pattern`: which regular expressions are taken, and what one says of a line.

The pattern is the user's, the line is the user's program's, and the thread that matches them is shared by all jobs. So
only those are taken that end in time on any line: one group, no other parentheses, no `|`, no back-reference, at most
`MAX_REPEATS` of `*`, `+`, `?` and `{…}`, and lines are cut. The worst of those takes about a second on the worst line.
`SHAPE` and `REPEATS` mean the same to RE2, in which the API server asks for them (hack/generate/rules.py).
"""

from __future__ import annotations

import re

from tfjob_controller.api.tfjob.types import MAX_PATTERN, MAX_STEPS, TFJobSpec

# So many characters of a line are looked at.
MAX_LINE = 200
MAX_REPEATS = 3

_ESCAPE = r"\\(?:[tdDsSwW]|[^0-9A-Za-z])"
_IN_SET = rf"(?:{_ESCAPE}|[^\\\[\]])"
_ONE = rf"(?:[^\\()\[\]{{}}*+?|^$]|{_ESCAPE}|\[\^?(?:\]|{_IN_SET}){_IN_SET}*\])"
_TIMES = r"(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})"
_PART = rf"(?:{_ONE}{_TIMES}?|[\^$]|\\[bB])"
SHAPE = rf"^{_PART}*\({_PART}+\){_PART}*$"
# Escapes are found so that they can be told from repeats.
REPEATS = r"\\.|[*+?{]"


def compile_pattern(pattern: str) -> re.Pattern[str] | None:
    """None for one that is not taken."""
    if len(pattern) > MAX_PATTERN or re.fullmatch(SHAPE, pattern) is None or repeats_of(pattern) > MAX_REPEATS:
        return None
    try:
        return re.compile(pattern, re.ASCII)
    except (re.error, OverflowError, FutureWarning):  # a range from z to a, {5,2}; a warning where they are errors
        return None


def pattern_of(spec: TFJobSpec) -> re.Pattern[str] | None:
    """None for a job that gives none."""
    if spec.autoscaling is None or spec.autoscaling.progress is None:
        return None
    return compile_pattern(spec.autoscaling.progress.pattern)


def repeats_of(pattern: str) -> int:
    return sum(not token.startswith("\\") for token in re.findall(REPEATS, pattern))


def match_line(pattern: re.Pattern[str], line: str) -> str | None:
    """What stands in the group; None for a line that says nothing of steps."""
    match = pattern.search(line[:MAX_LINE])
    return match[1] if match is not None else None


def parse_steps(text: str) -> int | None:
    """None for what is no number of steps."""
    number = text.strip()
    if not (number.isascii() and number.isdecimal()) or len(number) > len(str(MAX_STEPS)):
        return None
    return int(number) if int(number) <= MAX_STEPS else None
