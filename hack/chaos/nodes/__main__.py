"""`make chaos CHAOS_NODES=2`: injects faults while jobs with sidecars and probes run on two real nodes.

It uses the stack of NAME, which is started and stopped if it does not run, and needs root on Linux. Two controllers and
the auditor of jobs (audit.jobs) are processes beside it. Progress goes to standard error; the last line on standard
output is JSON. Exit code 1 if there were violations.

CHAOS_FAULTS    number of faults, 80
CHAOS_JOBS      number of jobs, 36
CHAOS_PARALLEL  number of jobs that run at the same time, 5
CHAOS_SEED      seed of all random choices; by default random
CHAOS_MEAN      mean seconds between faults, 4
CHAOS_KINDS     kinds of faults (chaos.nodes.faults.FAULTS), separated by commas; by default all
CHAOS_REST      seconds after the end of the last job in which nothing may start, 60
CHAOS_PATIENCE  seconds without progress after which the run ends, 400
NAME            name of the stack, chaosnodes
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.command import progress, show_result
from chaos.jobs.controllers import leader_of
from chaos.jobs.settings import Settings, settings_of
from chaos.jobs.stage import AUDITOR, open_controller
from chaos.jobs.submitted import SubmittedJobs
from chaos.nodes.faults import FAULTS, NODES, NodeFaults
from chaos.nodes.plan import node_job_plan, objects_of
from chaos.plan import fault
from chaos.stage import REPLICAS, report_of, start_auditor, wait
from localcluster import images, nodes, process, stack, state
from localcluster.api import Api
from localcluster.crds import install_crds
from localcluster.errors import LocalClusterError

_DEFAULTS = {"CHAOS_FAULTS": "80", "CHAOS_JOBS": "36", "CHAOS_MEAN": "4", "CHAOS_REST": "60", "CHAOS_PATIENCE": "400"}
_IMAGES = (images.BASE, images.MPI)
# The first image, sandbox and start on a busy machine, and a Lease that expires.
_REACTION_SECONDS = 120
_POLL_SECONDS = 0.5
_SHOW_SECONDS = 10.0


@dataclass(slots=True)
class Run:
    """One run on a stack; `marks` is a folder that all nodes see."""

    jobs: SubmittedJobs
    faults: NodeFaults
    settings: Settings
    parallel: int
    marks: Path
    submitted: int = 0

    def play(self) -> None:
        """Runs all jobs and faults; returns some time after the last job has ended, or when nothing ends any more."""
        rng = random.Random(self.settings.seed)  # noqa: S311 -- to be repeated, not to be kept secret
        planned = [
            fault(rng, self.settings.mean_seconds, self.settings.kinds, FAULTS) for _ in range(self.settings.faults)
        ]
        progress_at = shown_at = time.monotonic()
        due, last = progress_at, -1
        while (last != self.settings.jobs) and time.monotonic() - progress_at < self.settings.patience_seconds:
            self._submit()
            # Faults without a target do not count, so that others take their place.
            if planned and time.monotonic() >= due:
                chosen = planned.pop(0)
                self.faults.inject(chosen.kind, chosen.chance)
                due = time.monotonic() + chosen.after_seconds
            if (completed := self.jobs.completed) != last:
                last, progress_at = completed, time.monotonic()
            if time.monotonic() - shown_at >= _SHOW_SECONDS:
                shown_at = time.monotonic()
                progress(f"{completed} of {self.submitted} jobs completed, {self.faults.counts.total()} faults")
            time.sleep(_POLL_SECONDS)
        progress(f"the last job has ended; {self.settings.rest_seconds:g} s in which nothing may start")
        time.sleep(self.settings.rest_seconds)

    def _submit(self) -> None:
        while self.submitted < self.settings.jobs and len(self.jobs.active()) < self.parallel:
            plan = node_job_plan(self.submitted, self.settings.seed)
            *others, job = objects_of(plan, str(self.marks))
            for body in others:
                path = f"/apis/{body['apiVersion']}/namespaces/{self.jobs.namespace}/{body['kind'].lower()}s"
                self.jobs.api.create_if_missing(path, body)
            self.jobs.submit(plan, job)
            self.submitted += 1


@contextlib.contextmanager
def _namespace(api: Api, name: str) -> Iterator[None]:
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    wait(lambda: api.find(f"/api/v1/namespaces/{name}/serviceaccounts/default") is not None, f"{name} has no account")
    try:
        yield
    finally:
        api.delete(f"/api/v1/namespaces/{name}")


def run(folder: Path, settings: Settings, parallel: int, scratch: Path) -> dict[str, Any]:
    """Starts what is missing, plays a run and returns the fields of the JSON line. Raises LocalClusterError."""
    was_there = state.condition(state.read(folder)) is state.Condition.RUNNING
    nodes.prepare(_IMAGES)
    with contextlib.ExitStack() as open_:
        if not was_there:
            open_.callback(stack.down, folder)
        plane = stack.up(folder, NODES, owner=None if was_there else process.myself(), report=progress)
        for name in _IMAGES:
            nodes.load_image(folder, name, progress)
        api = Api.from_kubeconfig(plane.kubeconfig, pool_size=32)
        install_crds(api)
        namespace = f"chaos-{secrets.token_hex(3)}"
        open_.enter_context(_namespace(api, namespace))
        names = REPLICAS if process.may_name_hosts() else ("",)
        controllers = [open_.enter_context(open_controller(plane, name, scratch, {})) for name in names]
        wait(lambda: leader_of(api, controllers) is not None, "no controller became the leader")
        flags = (
            f"--reaction-seconds={_REACTION_SECONDS}",
            f"--namespace={namespace}",
            f"--keep={scratch}/history.jsonl",
        )
        auditor = start_auditor(plane, AUDITOR, *flags)
        open_.callback(auditor.kill)
        jobs = SubmittedJobs(api, namespace)
        jobs.start()
        open_.callback(jobs.stop)
        faults = NodeFaults(folder, jobs, controllers, lambda: auditor.send_signal(signal.SIGUSR1))
        begin = time.monotonic()
        Run(jobs, faults, settings, parallel, scratch / "marks").play()
        found = report_of(auditor)
        ended_badly = jobs.unfinished | jobs.wrong
        for line in [*found["violations"], *(f"{name}: {text}" for name, text in ended_badly.items())]:
            progress(f"violation: {line}")
        for problem in sorted(set(faults.problems)):
            progress(f"fault did not happen: {problem}")
        return {
            "faults": faults.counts.total(),
            **found,
            "unfinished": len(jobs.unfinished),
            "wrong": len(jobs.wrong),
            "seed": settings.seed,
            "seconds": round(time.monotonic() - begin, 1),
            "faults_by_kind": dict(sorted(faults.counts.items())),
        }


def main() -> int:
    """Runs the command and returns its exit code."""
    # Everything that was started is ended, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    scratch = Path(tempfile.mkdtemp(prefix="chaos-nodes-"))
    is_ok = False
    try:
        settings = settings_of({**_DEFAULTS, **os.environ}, FAULTS)
        parallel = int(os.environ.get("CHAOS_PARALLEL") or 5)
        repeat = f"repeat with: make chaos CHAOS_NODES={NODES} CHAOS_PARALLEL={parallel} {settings.variables}"
        progress(repeat)
        result = run(state.stack_dir(os.environ.get("NAME") or "chaosnodes"), settings, parallel, scratch)
        is_ok = not (result["violations"] or result["unfinished"] or result["wrong"])
    except (LocalClusterError, ValueError) as error:
        progress(f"chaos: {error}")
        return 2
    finally:
        if is_ok:
            shutil.rmtree(scratch, ignore_errors=True)
        else:
            progress(f"history and logs of the controllers: {scratch}")
    show_result(result)
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
