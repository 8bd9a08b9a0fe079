"""An event that the controller is to emit, once the status that it speaks of is on record."""

from __future__ import annotations

from dataclasses import dataclass

NORMAL = "Normal"
WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Emit:
    """One event on the job: type `Normal` or `Warning`, a reason from reasons.py, and a sentence."""

    type: str
    reason: str
    note: str
