"""Times and durations as text. The Kubernetes API writes times as RFC 3339 in UTC.

`Time` has whole seconds; two such texts compare like the moments they name. `MicroTime` has exactly six decimals.
Source: apimachinery pkg/apis/meta/v1/time.go, micro_time.go.
"""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime

# The longest text of a time that anybody writes has nanoseconds and an offset, and 35 characters.
MAX_TIME = 40
# Near the others, another offset or a delay may lead to a year that does not exist. The API server itself writes years
# from 1734 on, where a grace period of centuries overflows.
_YEARS = range(1000, 9001)
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_PLAIN_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def format_time(moment: datetime) -> str:
    """The moment as the API's Time, cut to whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: datetime) -> str:
    """The moment as the API's MicroTime, whose parser accepts exactly six decimals."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_time(text: str) -> datetime:
    """The moment that the text names; without a time zone it is UTC. Raises ValueError for any other text."""
    # Before the cache: users write times, and digits of a second may be any number.
    if len(text) > MAX_TIME:
        raise ValueError(f"not a time: {text[:MAX_TIME]!r}…")
    return _parsed_time(text)


@functools.lru_cache(maxsize=16384)
def _parsed_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.year not in _YEARS:
        raise ValueError(f"not a time: {text!r}")
    return moment.replace(tzinfo=moment.tzinfo or UTC)


def parse_time_or_none(text: str | None) -> datetime | None:
    """As `parse_time`; None for an empty or invalid text, since a status can be edited by hand."""
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None


def seconds_until(text: str, after_seconds: float, now: datetime) -> float:
    """The seconds from `now` until `after_seconds` after the time in `text`; negative if that has passed."""
    return (parse_time(text) - now).total_seconds() + after_seconds


def parse_duration(text: str) -> float:
    """The seconds of a duration as people and Go write it: `90s`, `1h30m`, `500ms`, or plain seconds.

    Raises ValueError for any other text.
    """
    if _PLAIN_SECONDS.fullmatch(text):
        return float(text)
    if not _DURATION.fullmatch(text):
        raise ValueError(f"not a duration: {text[:80]!r}")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text))
