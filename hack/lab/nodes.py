"""`make chaos CHAOS_NODES=2`: injects faults while jobs with sidecars and probes run on two real nodes.

It uses the stack of NAME, which is started and stopped if it does not run, and needs root on Linux. Two controllers and
the auditor of jobs (audit.jobs) are processes beside it. Progress goes to standard error; the last line on standard
output is JSON. Exit code 1 if there were violations.

CHAOS_FAULTS    number of faults, 80
CHAOS_JOBS      number of jobs, 36
CHAOS_PARALLEL  number of jobs that run at the same time, 5
CHAOS_SEED      seed of all random choices; by default random
CHAOS_MEAN      mean seconds between faults, 4
CHAOS_KINDS     kinds of faults (lab.nodefaults.FAULTS), separated by commas; by default all
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
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import command
from lab.clusters import NODES, open_nodes
from lab.command import Interval, Patience, Settings, kinds_variable, progress, seed_variable, variable, wait
from lab.injection import Fault, Faults, Injections, random_fault
from lab.leases import leader_of
from lab.nodefaults import FAULTS, NodeFaults
from lab.nodejobs import node_job_plan, objects_of
from lab.programs import CONTROLLER_LEASE, controller_replica, replica_names
from lab.stage import job_auditor
from lab.submitted import SubmittedJobs
from localcluster import images, state

_IMAGES = (images.BASE, images.MPI)
# The first image, sandbox and start on a busy machine, and a Lease that expires.
_REACTION_SECONDS = 120
_POLL_SECONDS, _SHOW_SECONDS = 0.5, 10.0


@dataclass(frozen=True)
class NodeSettings(Settings):
    seed: int = seed_variable("CHAOS_SEED")
    faults: int = variable("CHAOS_FAULTS", 80)
    jobs: int = variable("CHAOS_JOBS", 36)
    parallel: int = variable("CHAOS_PARALLEL", 5, may_be_zero=False)
    mean_seconds: float = variable("CHAOS_MEAN", 4.0)
    kinds: tuple[str, ...] = kinds_variable(FAULTS)
    rest_seconds: float = variable("CHAOS_REST", 60.0)
    patience_seconds: float = variable("CHAOS_PATIENCE", 400.0)


def faults_of(settings: NodeSettings, actions: NodeFaults) -> Faults:
    """Returns the faults of a run."""
    rng = random.Random(settings.seed)  # noqa: S311 -- to be repeated, not to be kept secret

    def next_fault(count: int) -> Fault | None:
        return random_fault(rng, settings.mean_seconds, FAULTS, settings.kinds) if count < settings.faults else None

    return Faults(Injections(next_fault, actions.actions), threading.Event())


def play(jobs: SubmittedJobs, faults: Faults, settings: NodeSettings, marks: Path) -> None:
    """Runs all jobs; returns some time after the last one has ended, or when none ends any more.

    `marks` is a folder that all nodes see.
    """
    submitted, shows, patience = 0, Interval(_SHOW_SECONDS), Patience(settings.patience_seconds)
    faults.start()
    while (completed := jobs.completed) < settings.jobs and not patience.is_over(completed):
        while submitted < settings.jobs and len(jobs.active()) < settings.parallel:
            plan = node_job_plan(submitted, settings.seed)
            *others, job = objects_of(plan, str(marks))
            for body in others:
                path = f"/apis/{body['apiVersion']}/namespaces/{jobs.namespace}/{body['kind'].lower()}s"
                jobs.api.create_if_missing(path, body)
            jobs.submit(plan, job)
            submitted += 1
        if shows.is_due():
            progress(f"{completed} of {submitted} jobs completed, {faults.summary}")
        time.sleep(_POLL_SECONDS)
    faults.stop()
    progress(f"the last job has ended; {settings.rest_seconds:g} s in which nothing may start")
    time.sleep(settings.rest_seconds)


def result_of(settings: NodeSettings, scratch: Path) -> dict[str, Any]:
    """Starts what is missing, plays a run and returns the fields of the JSON line. Raises LocalClusterError."""
    folder = state.stack_dir(os.environ.get("NAME") or "chaosnodes")
    namespace = f"chaos-{secrets.token_hex(3)}"
    with contextlib.ExitStack() as open_:
        plane, api = open_.enter_context(open_nodes(folder, _IMAGES, namespace))
        controllers = [open_.enter_context(controller_replica(plane, name, scratch)) for name in replica_names()]
        wait(lambda: leader_of(api, CONTROLLER_LEASE, controllers) is not None, "no controller became the leader")
        flags = (f"--reaction-seconds={_REACTION_SECONDS}", f"--namespace={namespace}")
        auditor = job_auditor(plane, scratch / "history.jsonl", *flags)
        open_.callback(auditor.kill)
        jobs = SubmittedJobs(api, namespace)
        jobs.start()
        open_.callback(jobs.stop)
        faults = faults_of(settings, NodeFaults(folder, jobs, controllers, auditor.report_outage))
        begin = time.monotonic()
        play(jobs, faults, settings, scratch / "marks")
        report, ended_badly = auditor.end(), jobs.unfinished | jobs.wrong
        for line in [*report["violations"], *(f"{name}: {text}" for name, text in ended_badly.items())]:
            progress(f"violation: {line}")
        for problem in sorted(faults.problems):
            progress(f"fault did not happen: {problem}")
        return {
            "faults": faults.counts.total(),
            **report,
            "unfinished": len(jobs.unfinished),
            "wrong": len(jobs.wrong),
            "seed": settings.seed,
            "seconds": round(time.monotonic() - begin, 1),
            "faults_by_kind": dict(sorted(faults.counts.items())),
        }


def run() -> bool:
    """Runs the command; returns whether all is well."""
    settings = NodeSettings.of(os.environ)
    progress(f"repeat with: make chaos CHAOS_NODES={NODES} {settings.variables}")
    scratch = Path(tempfile.mkdtemp(prefix="chaos-nodes-"))
    is_ok = False
    try:
        result = result_of(settings, scratch)
        is_ok = not (result["violations"] or result["unfinished"] or result["wrong"])
    finally:
        if is_ok:
            shutil.rmtree(scratch, ignore_errors=True)
        else:
            progress(f"history and logs of the controllers: {scratch}")
    command.show_result(result)
    return is_ok


if __name__ == "__main__":
    sys.exit(command.main("chaos", __doc__, run))
