"""`make soak`: creates and deletes jobs for an hour, and checks that controller and gang scheduler do not grow.

It has a control plane of its own with fake nodes; the controller, the gang scheduler and its kube-scheduler are
processes with default flags. The jobs of `make chaos` (lab.jobs) are created one after another, and their users
suspend, resume, resize and delete some of them. All are deleted soon after their end, so that the number of objects
stays constant. The usage of both programs is recorded every 10 s. Each figure is a slope per hour after the first
fifth, in which jobs are created four times as often to fill bounded memories (events, capacity changes). Progress goes
to standard error; standard output gets a JSON line for each figure. Exit code 1 if something grows, or a job did not
end as expected. SIGINT ends it early, with the figures so far.

SOAK_MINUTES    minutes in which jobs are created, 60
SOAK_EVERY      seconds from one job to the next, 4
SOAK_TTL        ttlSecondsAfterFinished of the jobs, 20
SOAK_PATIENCE   seconds after the last job in which all must have ended and be deleted, 600
SOAK_SEED       seed of the jobs; by default random
SOAK_SAMPLES    file for all samples, build/soak/samples.jsonl
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from bench import usage
from lab import command
from lab.background import Repeated
from lab.command import Interval, Settings, progress, seed_variable, variable
from lab.faults import Users
from lab.injection import FAULT_ERRORS, REQUEST_ERRORS
from lab.jobs import TFJOBS, TRAINJOBS, JobPlan, job_plan
from lab.mirror import PODS, name_of
from lab.soakfigures import WARM_UP_SHARE, Sample, figures, rest_figure, sample
from lab.soakstage import NAMESPACE, Stage, open_stage
from lab.submitted import CHILDREN

WARM_UP_SPEED = 4.0
_POLL_SECONDS = 0.1
_SHOW_SECONDS = 30.0
_SAMPLE_SECONDS = 10.0
_LEAST_SAMPLES = 20
# How many of a hundred jobs have which action of their users.
ACTIONS: Mapping[str, int] = {"job suspended": 12, "job deleted in the background": 12, "job scaled": 8}
# Jobs and their children, all of which must be deleted.
_LEFT = (TFJOBS, TRAINJOBS, PODS, *CHILDREN)
_ROOT_CONFIG_MAP = "kube-root-ca.crt"


@dataclass(frozen=True)
class SoakSettings(Settings):
    minutes: float = variable("SOAK_MINUTES", 60.0)
    every_seconds: float = variable("SOAK_EVERY", 4.0)
    ttl_seconds: int = variable("SOAK_TTL", 20)
    patience_seconds: float = variable("SOAK_PATIENCE", 600.0)
    seed: int = seed_variable("SOAK_SEED")
    samples: str = variable("SOAK_SAMPLES", "build/soak/samples.jsonl")

    @property
    def seconds(self) -> float:
        return 60.0 * self.minutes


def rest_seconds(at: float, settings: SoakSettings) -> float:
    """Returns the seconds from the job that is created after `at` seconds to the next one."""
    is_warming_up = at < WARM_UP_SHARE * settings.seconds
    return settings.every_seconds / (WARM_UP_SPEED if is_warming_up else 1.0)


def soak_plan(number: int, settings: SoakSettings) -> JobPlan:
    """Returns a job, which is deleted soon after its end."""
    plan = job_plan(number, settings.seed)
    return replace(plan, spec={**plan.spec, "ttlSecondsAfterFinished": settings.ttl_seconds})


class Soak:
    """One run on a stage."""

    def __init__(self, stage: Stage, settings: SoakSettings, is_stopped: threading.Event) -> None:
        self._stage = stage
        self._jobs = stage.jobs
        self._users = Users(stage.jobs)
        self._settings = settings
        self._is_stopped = is_stopped
        self._rng = random.Random(settings.seed)  # noqa: S311 -- to be repeated, not to be kept secret
        self._begin = time.monotonic()
        self._submitted = 0
        self._next_at = 0.0
        self._samples: list[Sample] = []
        self._shows = Interval(_SHOW_SECONDS)

    def play(self) -> list[dict[str, Any]]:
        """Runs until the time is up or `is_stopped` is set, and returns the figures."""
        before = sample(0.0, self._stage.programs)
        step = min(_SAMPLE_SECONDS, self._settings.seconds / _LEAST_SAMPLES)
        path = Path(self._settings.samples)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        with Repeated(step, functools.partial(self._take_sample, path)):
            self._drive()
        minutes = self._seconds / 60.0
        left = self._drain()
        after = sample(self._seconds, self._stage.programs)
        return [*figures(self._samples), rest_figure(before, after), self._jobs_figure(minutes, left)]

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._begin

    def _drive(self) -> None:
        """Submits jobs on schedule."""
        while self._seconds < self._settings.seconds and not self._is_stopped.wait(_POLL_SECONDS):
            if self._seconds >= self._next_at:
                self._next_at += rest_seconds(self._next_at, self._settings)
                self._submit(soak_plan(self._submitted, self._settings))
            self._show()

    def _submit(self, plan: JobPlan) -> None:
        self._submitted += 1
        try:
            self._jobs.submit(plan)
        except REQUEST_ERRORS as error:
            progress(f"{plan.name} could not be created: {error}")
        self._act()

    def _act(self) -> None:
        """Performs an action on a job for some of those that are created."""
        lot = self._rng.uniform(0, 100)
        for kind, share in ACTIONS.items():
            lot -= share
            if lot < 0:
                # There may be no job that it applies to.
                with contextlib.suppress(*FAULT_ERRORS):
                    self._users.actions[kind](self._rng.random())
                return

    def _take_sample(self, path: Path) -> None:
        try:
            taken = sample(self._seconds, self._stage.programs)
        except FAULT_ERRORS as error:
            progress(f"no sample: {error}")
            return
        self._samples.append(taken)
        with path.open("ab") as file:
            file.write(msgspec.json.encode(taken) + b"\n")

    def _show(self) -> None:
        if self._shows.is_due():
            status = f"{self._jobs.completed} of {self._submitted} jobs completed, {len(self._jobs.wrong)} wrong"
            used = self._samples[-1].figures if self._samples else {}
            usages = ", ".join(f"{name} {value:.4g}" for name, value in used.items())
            progress(f"{self._seconds / 60:5.1f} min  {status}; {usages}")

    def _drain(self) -> dict[str, int]:
        """Waits until all jobs and their children are deleted; returns the number of those left, by kind."""
        progress("no more jobs: waiting until all are deleted")
        deadline = time.monotonic() + self._settings.patience_seconds
        while (self._jobs.unfinished or self._left()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS * 5)
        return self._left()

    def _left(self) -> dict[str, int]:
        left = Counter[str]()
        for path in _LEFT:
            items = self._stage.api.list(path.format(NAMESPACE))
            left[path.rpartition("/")[2]] += sum(name_of(item) != _ROOT_CONFIG_MAP for item in items)
        return dict(+left)

    def _jobs_figure(self, minutes: float, left: dict[str, int]) -> dict[str, Any]:
        wrong, programs = self._jobs.unfinished | self._jobs.wrong, self._stage.programs.items()
        for name, status in wrong.items():
            progress(f"{name}: {status}")
        return {
            "name": "soak_jobs",
            "value": self._jobs.completed,
            "unit": "jobs",
            "wrong": len(wrong),
            "left": left,
            "minutes": round(minutes, 1),
            "cpu_seconds": {name: usage.cpu_seconds(program.pid) for name, program in programs},
            "peak_rss_mb": {name: round(usage.peak_resident_bytes(program.pid) / 1e6, 1) for name, program in programs},
            "load": round(sum(taken.load for taken in self._samples) / max(1, len(self._samples)), 1),
            "seed": self._settings.seed,
            "ok": not wrong and not left and self._jobs.completed == self._submitted > 0,
        }


def run() -> bool:
    """Runs the command; returns whether all is well."""
    settings, is_stopped = SoakSettings.of(os.environ), threading.Event()
    progress(f"repeat with: make soak {settings.variables}")
    with open_stage() as stage:
        # From here on, a signal ends the run with the figures so far.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: is_stopped.set())
        results = Soak(stage, settings, is_stopped).play()
        for figure in results:
            command.show_result(figure)
        is_ok = all(figure.get("ok", True) for figure in results)
        if not is_ok:
            progress(f"logs of the programs: {command.keep_logs('soak', stage.plane.logs)}")
    return is_ok


if __name__ == "__main__":
    sys.exit(command.main("soak", __doc__, run))
