"""How long ago something was, as people say it."""

from __future__ import annotations

from datetime import datetime

from tfjob_controller.util.timestamps import parse_time

# Below these many seconds an age is said in the unit before.
_UNITS = ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h"))


def age(moment: str | None, now: datetime) -> str:
    """Such as 45s, 12m, 3h or 5d; empty for no moment (RFC 3339)."""
    if not moment:
        return ""
    seconds = max(0, int((now - parse_time(moment)).total_seconds()))
    for below, unit, letter in _UNITS:
        if seconds < below:
            return f"{seconds // unit}{letter}"
    return f"{seconds // 86400}d"
