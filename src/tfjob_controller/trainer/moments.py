"""Times as the API writes them: RFC 3339 in UTC, whole seconds. Such texts compare as the moments they name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def to_text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_text(text: str) -> datetime:
    return datetime.fromisoformat(text)


def seconds_until(text: str, after_seconds: float, now: datetime) -> float:
    """From `now` until `after_seconds` after the moment in `text`; negative when that is past."""
    return (from_text(text) + timedelta(seconds=after_seconds) - now).total_seconds()
