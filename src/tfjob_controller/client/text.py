"""Words of others on one line. Only the standard library, since a refusal of the command line is told so, too."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tfjob_controller.util.text import escape
from tfjob_controller.util.timestamps import parse_time


def one_line(text: str) -> str:
    """Without control characters: what a program wrote must not rule the reader's terminal."""
    shown = (each if each.isprintable() else " " if each.isspace() else escape(each) for each in text)
    return " ".join("".join(shown).split())


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


def replica_ranges(replicas: Sequence[str]) -> str:
    """`worker-0..3, worker-5` for worker-0, worker-1, worker-2, worker-3 and worker-5."""
    runs: list[tuple[str, int, int]] = []
    for replica in replicas:
        role, _, text = replica.rpartition("-")
        index = int(text)
        if runs and runs[-1][0] == role and runs[-1][2] == index - 1:
            runs[-1] = (role, runs[-1][1], index)
        else:
            runs.append((role, index, index))
    return ", ".join(f"{role}-{first}" + (f"..{last}" if last > first else "") for role, first, last in runs)
