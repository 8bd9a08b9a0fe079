"""`make chaos`: injects faults while TFJobs, TrainJobs and gangs run; auditors report violations of the rules.

It has a control plane of its own, fake nodes, and two controllers and two gang schedulers with their kube-schedulers as
processes. Progress goes to standard error; the last line on standard output is JSON. Exit code 1 if there were
violations.

CHAOS_FAULTS    number of faults, 1000
CHAOS_JOBS      number of jobs, 150
CHAOS_SEED      seed of all random choices; by default random
CHAOS_MEAN      mean seconds between faults, 0.5
CHAOS_KINDS     kinds of faults (lab.chaos.FAULTS), separated by commas; by default all
CHAOS_REST      seconds in which threads are counted, before the first fault and after the last one, 5
CHAOS_PATIENCE  seconds without progress after which the run ends, 180
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from audit.jobs.judge import CATEGORIES
from lab import command
from lab.command import Interval, Patience, Settings, kinds_variable, progress, seed_variable, variable
from lab.faults import CapacityFaults, SystemFaults, Users
from lab.injection import REQUEST_ERRORS, Fault, Faults, Injections, random_fault
from lab.jobs import JobPlan, job_plan, warm_up_plans
from lab.machines import Disk
from lab.programs import Controller
from lab.requests import CODES, REQUEST_FAULTS
from lab.stage import Stage, open_stage
from localcluster.api import Api

_POLL_SECONDS, _SHOW_SECONDS = 0.1, 10.0
# The number of jobs that are submitted before the first fault.
_AHEAD = 10
# These figures come first in the JSON line, and must be 0.
REQUIRED_ZERO = (*CATEGORIES, "partial_gangs", "threads_leaked", "unfinished")

# Relative frequency of the requests of a target: writes are affected more often than reads.
_WEIGHTS = {"creates": 4, "statuses": 4, "deletes": 3, "patches": 3, "watches": 3}
# Relative frequency of each kind of fault.
FAULTS: Mapping[str, int] = {
    **{kind: _WEIGHTS.get(fault.target, 1 if fault.target in CODES else 2) for kind, fault in REQUEST_FAULTS.items()},
    "controller killed": 4,
    "both controllers killed": 1,
    "controller stopped": 3,
    "controller frozen": 2,
    "lease stolen": 2,
    "clock jump": 8,
    "disk full": 6,
    "connections cut": 8,
    "connections half-open": 4,
    "connections refused": 3,
    "answers slow": 4,
    "gang scheduler killed": 5,
    "gang kube-scheduler killed": 2,
    "gang kube-scheduler stopped": 1,
    "gang leader killed": 1,
    "gang leader stopped": 1,
    "gang scheduler frozen": 2,
    "gang lease stolen": 1,
    "kube-scheduler killed": 2,
    "kube-controller-manager killed": 3,
    "kube-apiserver killed": 2,
    "etcd killed": 2,
    "foreign pods": 4,
    "foreign pods on our scheduler": 2,
    "node cordoned": 3,
    "node deleted": 3,
    "job suspended": 8,
    "job scaled": 10,
    "job deleted in the background": 4,
    "job deleted in the foreground": 4,
    "job deleted, children orphaned": 3,
    "pod deleted": 10,
    "pod deleted at once": 6,
    "child Job deleted": 5,
    "Service deleted": 4,
    "Gang deleted": 3,
}
# Faults of one lane never overlap.
LANES: Mapping[str, Sequence[str]] = {
    "plane": ("kube-apiserver killed", "etcd killed", "kube-scheduler killed", "kube-controller-manager killed"),
    "gangs": (
        *("gang scheduler killed", "gang kube-scheduler killed", "gang scheduler frozen", "gang lease stolen"),
        *("gang kube-scheduler stopped", "gang leader killed", "gang leader stopped"),
    ),
    "controllers": ("controller killed", "both controllers killed", "controller stopped", "controller frozen"),
    "network": ("connections half-open", "connections refused", "answers slow"),
    "clock": ("clock jump",),
    "disk": ("disk full",),
}
# These faults leave no leader for some seconds. The last part of the faults spares the controllers, so that their leaks
# add up.
ELECTED = (*LANES["controllers"], "lease stolen")
_SPARED_PART = 0.2
_COUNT_SECONDS = 0.25
_POOL = "writer"


@dataclass(frozen=True)
class ChaosSettings(Settings):
    seed: int = seed_variable("CHAOS_SEED")
    faults: int = variable("CHAOS_FAULTS", 1000)
    jobs: int = variable("CHAOS_JOBS", 150)
    mean_seconds: float = variable("CHAOS_MEAN", 0.5)
    kinds: tuple[str, ...] = kinds_variable(FAULTS)
    rest_seconds: float = variable("CHAOS_REST", 5.0)
    patience_seconds: float = variable("CHAOS_PATIENCE", 180.0)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a command plays: its jobs by number and seed, and the relative frequency of each kind of fault.

    `command` is what make runs. `prepare` gets the API once the stage is open. The flags are those of `open_stage`.
    """

    command: str
    job_plan: Callable[[int, int], JobPlan]
    faults: Mapping[str, int]
    prepare: Callable[[Api], None] = lambda api: None
    flags: Sequence[str] = ()
    auditor_flags: Sequence[str] = ()


CHAOS = Scenario("chaos", job_plan, FAULTS)


def faults_of(stage: Stage, scenario: Scenario, settings: ChaosSettings) -> Faults:
    """Returns the faults of a run."""
    rng = random.Random(settings.seed)  # noqa: S311 -- to be repeated, not to be kept secret
    stopping = threading.Event()
    capacity, system = CapacityFaults(stage.api, stage.jobs.later), SystemFaults(stage, stopping)
    actions = {**capacity.actions, **system.actions, **Users(stage.jobs).actions}

    def next_fault(count: int) -> Fault | None:
        if count >= settings.faults:
            return None
        is_spared = count > (1 - _SPARED_PART) * settings.faults and not settings.kinds
        while True:
            fault = random_fault(rng, settings.mean_seconds, scenario.faults, settings.kinds)
            if not (is_spared and fault.kind in ELECTED):
                return fault

    def failed(kind: str) -> None:
        if kind in LANES["plane"]:
            system.revive()

    ends = (system.restore, capacity.restore)
    return Faults(Injections(next_fault, actions, ends, LANES, failed), stopping)


@dataclass(frozen=True, slots=True)
class Count:
    """Threads and open files of an idle process.

    A leader has more of both than a standby, so each role is compared with itself. Threads of the writer pool are
    excluded: the pool grows up to its bound when many writes are pending, and keeps its size. Connections are pooled in
    the same way: files are reported, and only threads are judged.
    """

    threads: int
    files: int


def counts_at_rest(controllers: Sequence[Controller], leader: Controller, rest_seconds: float) -> dict[str, Count]:
    """Returns the smallest counts within that time, by role: leader or standby.

    The smallest counts exclude threads of requests in progress. Of several standbys, the one with the most threads
    counts. A controller that does not respond is left out.
    """
    end = time.monotonic() + rest_seconds
    threads: dict[str, list[int]] = defaultdict(list)
    files: dict[str, list[int]] = defaultdict(list)
    while time.monotonic() < end:
        for controller in controllers:
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                threads[controller.name].append(count_outside_pool(controller.threads()))
                files[controller.name].append(controller.files)
        time.sleep(_COUNT_SECONDS)
    counts: dict[str, Count] = {}
    for name, numbers in threads.items():
        role, count = "leader" if name == leader.name else "standby", Count(min(numbers), min(files[name]))
        counts[role] = max(counts.get(role, count), count, key=lambda count: count.threads)
    return counts


def count_outside_pool(names: Iterable[str]) -> int:
    """Returns how many of these threads do not belong to the pool."""
    return sum(not name.startswith(_POOL) for name in names)


def leaked(before: Mapping[str, Count], after: Mapping[str, Count]) -> int:
    """Returns how many threads were added."""
    return sum(max(0, after[role].threads - before[role].threads) for role in after.keys() & before.keys())


class Run:
    """One run on a stage."""

    def __init__(self, stage: Stage, scenario: Scenario, settings: ChaosSettings) -> None:
        self._stage = stage
        self._jobs = stage.jobs
        self._scenario, self._settings = scenario, settings
        self._faults = faults_of(stage, scenario, settings)
        self._submitted = 0
        self._begin = time.monotonic()
        self._shows = Interval(_SHOW_SECONDS)

    def play(self) -> dict[str, Any]:
        """Runs all jobs and faults and returns the fields of the JSON line."""
        for plan in warm_up_plans():
            self._jobs.submit(plan)
        self._await_all()
        before = self._counts_at_rest()
        self._faults.start()
        try:
            self._drive()
        finally:
            self._faults.stop()
        progress("no more faults; waiting for those in progress")
        self._await_all()
        return self._result(before, self._counts_at_rest())

    def _counts_at_rest(self) -> dict[str, Count]:
        return counts_at_rest(self._stage.controllers, self._stage.leader, self._settings.rest_seconds)

    def _drive(self) -> None:
        """Submits jobs at the rate of the faults, so that jobs run during all of them."""
        settings = self._settings
        while not (self._faults.has_ended and self._submitted >= settings.jobs):
            due = _AHEAD + self._faults.counts.total() * settings.jobs / max(1, settings.faults)
            # If the server does not respond, the request is repeated in the next iteration.
            with contextlib.suppress(*REQUEST_ERRORS):
                while self._submitted < min(due, settings.jobs):
                    self._jobs.submit(self._scenario.job_plan(self._submitted, settings.seed))
                    self._submitted += 1
            self._show_and_rest()

    def _await_all(self) -> None:
        """Waits until all jobs have completed or none makes progress any more."""
        patience = Patience(self._settings.patience_seconds)
        while (unfinished := self._jobs.unfinished) and not patience.is_over(unfinished):
            self._show_and_rest()

    def _show_and_rest(self) -> None:
        if self._shows.is_due():
            completed = f"{self._jobs.completed} of {self._submitted} jobs completed"
            progress(f"{time.monotonic() - self._begin:5.0f} s  {completed}, {self._faults.summary}")
        time.sleep(_POLL_SECONDS)

    def _result(self, before: Mapping[str, Count], after: Mapping[str, Count]) -> dict[str, Any]:
        unfinished, wrong = self._jobs.unfinished, self._jobs.wrong
        gangs, jobs = self._stage.audited()
        for name, status in {**unfinished, **wrong}.items():
            progress(f"{name}: {status}")
        for problem in sorted(self._faults.problems):
            progress(f"fault did not happen: {problem}")
        violations = [*jobs.pop("violations"), *gangs.pop("violations")]
        for violation in violations:
            progress(f"violation: {violation}")
        figures = {name: jobs.pop(name) for name in CATEGORIES}
        figures["partial_gangs"] = sum(_is_partial(violation) for violation in violations)
        figures["wrong_states"] = max(figures["wrong_states"], len(wrong))
        roles = [role for role in before if role in after]
        stage = self._stage
        return {
            "faults": self._faults.counts.total(),
            "jobs": self._submitted + len(warm_up_plans()),
            **figures,
            "threads_leaked": leaked(before, after),
            "unfinished": len(unfinished),
            "seed": self._settings.seed,
            "violations": violations,
            "seconds": round(time.monotonic() - self._begin, 1),
            "faults_by_kind": dict(sorted(self._faults.counts.items())),
            "requests_hit": stage.requests.hits.total(),
            "requests_hit_by_kind": dict(sorted(stage.requests.hits.items())),
            "ended_by_themselves": {
                "controllers": sum(controller.supervised.ended_by_itself for controller in stage.controllers),
                "gang schedulers": stage.gang_programs_ended,
            },
            "nobody_led_seconds": round(stage.outages.idle_seconds, 1),
            "threads": {role: [before[role].threads, after[role].threads] for role in roles},
            "files": {role: [before[role].files, after[role].files] for role in roles},
            "auditors": {"jobs": jobs, "gangs": gangs},
        }


def _is_partial(violation: object) -> bool:
    """Reports whether a violation of the auditor of gangs is about a partly bound gang."""
    return isinstance(violation, dict) and violation.get("rule") == "partly-bound"


def play(scenario: Scenario, settings: ChaosSettings) -> bool:
    """Runs a command; returns whether all is well."""
    progress(f"repeat with: make {scenario.command} {settings.variables}")
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        # This must precede all threads: only threads that start later share the new mount namespace.
        disk = Disk(Path(folder) / "disk")
        with open_stage(settings.seed, disk, scenario.flags, scenario.auditor_flags) as stage:
            scenario.prepare(stage.api)
            result = Run(stage, scenario, settings).play()
            is_ok = not (result["violations"] or any(result[name] for name in REQUIRED_ZERO))
            if not is_ok:
                progress(f"logs of the programs: {stage.keep_logs()}")
                progress(f"repeat with: make {scenario.command} {settings.variables}")
    command.show_result(result)
    return is_ok


if __name__ == "__main__":
    sys.exit(command.main("chaos", __doc__, lambda: play(CHAOS, ChaosSettings.of(os.environ))))
