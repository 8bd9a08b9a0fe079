r"""The regular expressions of `autoscaling.progress.pattern`: their validation, and how they are matched.

Users control both the pattern and the lines, and one thread matches those of all jobs. So a pattern must have a bounded
cost on any line: one group, no other parentheses, no `|`, no back-reference, and at most `MAX_REPEATS` of `*`, `+`, `?`
and `{…}`; and lines are truncated. The worst pattern takes about a second on the worst line. `SHAPE` and `REPEATS` mean
the same in RE2, which the API server uses for them (hack/generate/rules.py).
"""

from __future__ import annotations

import re

from tfjob_controller.api.tfjob.types import MAX_PATTERN, MAX_STEPS, TFJobSpec

# Lines are truncated to this number of characters.
MAX_LINE = 200
MAX_REPEATS = 3

_ESCAPE = r"\\(?:[tdDsSwW]|[^0-9A-Za-z])"
_IN_SET = rf"(?:{_ESCAPE}|[^\\\[\]])"
_ONE = rf"(?:[^\\()\[\]{{}}*+?|^$]|{_ESCAPE}|\[\^?(?:\]|{_IN_SET}){_IN_SET}*\])"
_TIMES = r"(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})"
_PART = rf"(?:{_ONE}{_TIMES}?|[\^$]|\\[bB])"
SHAPE = rf"^{_PART}*\({_PART}+\){_PART}*$"
# Matches escapes too, so that an escaped * is not counted as a repeat.
REPEATS = r"\\.|[*+?{]"


def compile_pattern(pattern: str) -> re.Pattern[str] | None:
    """The compiled pattern; None if it is not allowed."""
    if len(pattern) > MAX_PATTERN or re.fullmatch(SHAPE, pattern) is None or repeats_of(pattern) > MAX_REPEATS:
        return None
    try:
        return re.compile(pattern, re.ASCII)
    except (re.error, OverflowError, FutureWarning):  # such as [z-a] and {5,2}; tests turn warnings into errors
        return None


def pattern_of(spec: TFJobSpec) -> re.Pattern[str] | None:
    """The compiled pattern of a job; None without one."""
    if spec.autoscaling is None or spec.autoscaling.progress is None:
        return None
    return compile_pattern(spec.autoscaling.progress.pattern)


def repeats_of(pattern: str) -> int:
    return sum(not token.startswith("\\") for token in re.findall(REPEATS, pattern))


def match_line(pattern: re.Pattern[str], line: str) -> str | None:
    """The text of the group; None if the line does not match."""
    match = pattern.search(line[:MAX_LINE])
    return match[1] if match is not None else None


def parse_steps(text: str) -> int | None:
    """The number of steps; None if the text is no valid number."""
    number = text.strip()
    if not (number.isascii() and number.isdecimal()) or len(number) > len(str(MAX_STEPS)):
        return None
    return int(number) if int(number) <= MAX_STEPS else None
