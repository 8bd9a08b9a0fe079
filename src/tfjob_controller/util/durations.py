"""Durations as people and Go write them: `90s`, `1h30m`, `500ms`, or plain seconds."""

from __future__ import annotations

import re

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_PLAIN_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def parse_duration(text: str) -> float:
    """The duration in seconds. Raises ValueError for a text that is no duration."""
    if _PLAIN_SECONDS.fullmatch(text):
        return float(text)
    if not _DURATION.fullmatch(text):
        raise ValueError(f"not a duration: {text[:80]!r}")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text))
