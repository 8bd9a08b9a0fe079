"""What is known of each job from the reports of its training programs.

Theory of operation. A program reports its beginning with the step from which it continues, every step, and its end. At
the beginning, the reports are compared with what the storage held when the restore of that pod began: `on_begin`
does that, in the thread of the request, before the program trains. `lab.checkpoints.storages` serves the reports.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Reported:
    """What the programs of one job have reported."""

    pod: str = ""
    began_at: float = 0.0
    """When the last program began; seconds of this machine's clock."""
    begins: int = 0
    restores: int = 0
    last_step: int = 0
    """The highest step of all programs."""
    steps_since_begin: int = 0
    has_ended: bool = False
    may_end: bool = False
    problems: list[str] = field(default_factory=list)


class Reports:
    """The reports of all jobs. Thread-safe."""

    def __init__(self, on_begin: Callable[[str, str, int], None] = lambda job, pod, step: None) -> None:
        """`on_begin` gets the job, the pod, and the step from which its program continues."""
        self.on_begin = on_begin
        self._jobs: dict[str, Reported] = {}
        self._lock = threading.Lock()

    def job(self, name: str) -> Reported:
        with self._lock:
            return self._jobs.setdefault(name, Reported())

    def jobs(self) -> dict[str, Reported]:
        with self._lock:
            return dict(self._jobs)

    def receive(self, fields: dict[str, Any]) -> bool:
        """Records one report; returns whether the program may end."""
        name, pod, what = str(fields["job"]), str(fields["pod"]), fields["what"]
        job = self.job(name)
        # A report is repeated if its answer was lost.
        is_new = what == "began" and pod != job.pod
        if is_new:
            self.on_begin(name, pod, int(fields["step"]))
        with self._lock:
            if what == "broken":
                job.problems.append(f"the program found a broken checkpoint: {fields['reason']}")
            elif is_new:
                job.pod, job.steps_since_begin, job.began_at = pod, 0, time.time()
                job.begins += 1
                job.restores += int(fields["step"]) > 0
                # What a later program repeats is counted from where this one begins.
                job.last_step = int(fields["step"])
            elif what != "began" and pod == job.pod:
                job.last_step = int(fields["step"])
                job.steps_since_begin += 1
                job.has_ended = job.has_ended or what == "ended"
            return job.may_end
