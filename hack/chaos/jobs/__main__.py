"""`make chaos`: injects faults while TFJobs, TrainJobs and gangs run; auditors report violations of the rules.

It has a control plane of its own, fake nodes, and two controllers and two gang schedulers with their kube-schedulers as
processes. Progress goes to standard error; the last line on standard output is JSON. Exit code 1 if there were
violations.

CHAOS_FAULTS    number of faults, 1000
CHAOS_JOBS      number of jobs, 150
CHAOS_SEED      seed of all random choices; by default random
CHAOS_MEAN      mean seconds between faults, 0.5
CHAOS_KINDS     kinds of faults (chaos.jobs.faultplan.FAULTS), separated by commas; by default all
CHAOS_REST      seconds in which threads are counted, before the first fault and after the last one, 5
CHAOS_PATIENCE  seconds without progress after which the run ends, 180
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from chaos import command
from chaos.command import progress
from chaos.jobs.faults import job_faults
from chaos.jobs.leaks import Count, counts_at_rest, leaked
from chaos.jobs.machines import Disk
from chaos.jobs.plan import job_plan, warm_up_plans
from chaos.jobs.settings import Settings, settings_of
from chaos.jobs.stage import JobStage, open_job_stage
from chaos.jobs.submitted import REQUEST_ERRORS

_POLL_SECONDS = 0.1
_SHOW_SECONDS = 10.0
# A run succeeds if these are 0; they come first in the JSON line.
REQUIRED_ZERO = (
    "duplicates",
    "orphans",
    "partial_gangs",
    "wrong_states",
    "reruns",
    "late_starts",
    "stuck",
    "threads_leaked",
    "unfinished",
)


class Run:
    """One run on a stage."""

    def __init__(self, stage: JobStage, settings: Settings) -> None:
        self._stage = stage
        self._jobs = stage.jobs
        self._settings = settings
        rng = random.Random(settings.seed)  # noqa: S311 -- to be repeated, not to be kept secret
        self._faults = job_faults(stage, rng, settings)
        self._submitted = 0
        self._begin = time.monotonic()
        self._shown_at = 0.0

    def play(self) -> dict[str, Any]:
        """Runs all jobs and faults and returns the fields of the JSON line."""
        before = self._warm_up()
        self._faults.start()
        try:
            self._drive()
        finally:
            self._faults.stop()
        progress("no more faults; waiting for those in progress")
        self._await_all()
        after = counts_at_rest(self._stage.controllers, self._stage.leader, self._settings.rest_seconds)
        return self._result(before, after)

    def _warm_up(self) -> dict[bool, Count]:
        """Runs a few jobs before the first fault; returns the threads and files of the controllers after them."""
        for plan in warm_up_plans():
            self._jobs.submit(plan)
        self._await_all()
        return counts_at_rest(self._stage.controllers, self._stage.leader, self._settings.rest_seconds)

    def _drive(self) -> None:
        """Submits jobs at the rate of the faults, so that jobs run during all of them."""
        while not (self._faults.has_ended and self._submitted >= self._settings.jobs):
            due = 10 + self._faults.done * self._settings.jobs / max(1, self._settings.faults)
            # If the server does not respond, the request is repeated in the next iteration.
            with contextlib.suppress(*REQUEST_ERRORS):
                while self._submitted < min(due, self._settings.jobs):
                    self._jobs.submit(job_plan(self._submitted, self._settings.seed))
                    self._submitted += 1
            self._show()
            time.sleep(_POLL_SECONDS)

    def _await_all(self) -> None:
        """Waits until all jobs have completed or none makes progress any more."""
        last, progress_at = self._jobs.unfinished, time.monotonic()
        while last and time.monotonic() - progress_at < self._settings.patience_seconds:
            self._show()
            time.sleep(_POLL_SECONDS)
            if (now := self._jobs.unfinished) != last:
                last, progress_at = now, time.monotonic()

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown_at >= _SHOW_SECONDS:
            self._shown_at = now
            counts = self._faults.counts
            faults = f"{self._faults.done} faults of {len(counts)} kinds"
            progress(
                f"{now - self._begin:5.0f} s  {self._jobs.completed} of {self._submitted} jobs completed, {faults}"
            )

    def _result(self, before: dict[bool, Count], after: dict[bool, Count]) -> dict[str, Any]:
        unfinished, wrong = self._jobs.unfinished, self._jobs.wrong
        gangs, *others = self._stage.auditor_reports()
        jobs: dict[str, Any] = others[0] if others else {}
        for name, status in {**unfinished, **wrong}.items():
            progress(f"{name}: {status}")
        for problem in sorted(set(self._faults.problems)):
            progress(f"fault did not happen: {problem}")
        violations = [*jobs.pop("violations", []), *gangs.pop("violations")]
        for each in violations:
            progress(f"violation: {each}")
        partial = jobs.pop("partial_gangs", 0) + sum(_is_partial(each) for each in violations)
        results = {
            "faults": self._faults.done,
            "jobs": self._submitted + len(warm_up_plans()),
            "duplicates": jobs.pop("duplicates", 0),
            "orphans": jobs.pop("orphans", 0),
            "partial_gangs": partial,
            "wrong_states": max(jobs.pop("wrong_states", 0), len(wrong)),
            "reruns": jobs.pop("reruns", 0),
            "late_starts": jobs.pop("late_starts", 0),
            "stuck": jobs.pop("stuck", 0),
            "threads_leaked": leaked(before, after),
            "unfinished": len(unfinished),
            "seed": self._settings.seed,
        }
        stage = self._stage.stage
        return results | {
            "violations": violations,
            "seconds": round(time.monotonic() - self._begin, 1),
            "faults_by_kind": dict(sorted(self._faults.counts.items())),
            "requests_hit": sum(stage.requests.hits.values()),
            "requests_hit_by_kind": dict(sorted(stage.requests.hits.items())),
            "ended_by_themselves": {
                "controllers": sum(each.supervised.ended_by_itself for each in self._stage.controllers),
                "gang schedulers": sum(each.ended_by_itself for one in stage.replicas for each in one.programs),
            },
            "nobody_led_seconds": round(stage.outages.idle_seconds, 1),
            "threads": {_role(role): [before[role].threads, after[role].threads] for role in before if role in after},
            "files": {_role(role): [before[role].files, after[role].files] for role in before if role in after},
            "auditors": {"jobs": jobs, "gangs": {**gangs, "races": len(gangs["races"])}},
        }


def _is_partial(violation: object) -> bool:
    """Reports whether a violation of the auditor of gangs is about a partly bound gang."""
    return isinstance(violation, dict) and violation.get("rule") == "partly-bound"


def _role(is_leader: bool) -> str:
    return "leader" if is_leader else "standby"


def run() -> bool:
    """Runs the command; returns whether all is well."""
    settings = settings_of(os.environ)
    progress(f"repeat with: make chaos {settings.variables}")
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        # This must precede all threads: only threads that start later share the new mount namespace.
        disk = Disk(Path(folder) / "disk")
        with open_job_stage(settings.seed, disk, progress) as stage:
            result = Run(stage, settings).play()
            is_ok = not (result["violations"] or any(result[name] for name in REQUIRED_ZERO))
            if not is_ok:
                progress(f"logs of the programs: {stage.keep_logs(Path(tempfile.mkdtemp(prefix='chaos-logs-')))}")
                progress(f"repeat with: make chaos {settings.variables}")
    command.show_result(result)
    return is_ok


if __name__ == "__main__":
    sys.exit(command.main("chaos", __doc__, run))
