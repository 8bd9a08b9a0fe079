"""An event on a job, as the decisions about its status and its scaling return it."""

from __future__ import annotations

from dataclasses import dataclass

NORMAL = "Normal"
WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """One event on the job: type `Normal` or `Warning`, a reason from reasons.py, and a sentence."""

    type: str
    reason: str
    note: str
