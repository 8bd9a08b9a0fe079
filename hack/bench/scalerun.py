"""Many jobs at once on many nodes (a part of `make bench-scale`).

1,000 TFJobs of 10 replicas on 5,000 nodes, from the first POST until the last job has succeeded. The controller runs
during that time; the Job controller creates the pods, kube-scheduler binds them and kwok simulates them.

- `scale_seconds`: wall time. `scale_cpu`, `scale_rss`: the controller's CPU and the peak of its resident set, both from
  its start. `scale_requests`: the requests that it sent for each job, including watches and events.
- `scale_event_to_write_p99`: the lag of the master (bench.scalelag). `scale_figures_to_write_p99`: of all replicas.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from bench import usage
from bench.controller import Controller, controller
from bench.gangdriver import Follower
from bench.jobs import TFJOBS, master_and_workers
from bench.kwok import Times
from bench.report import progress, rank, report
from bench.scalelag import lags_of
from bench.scalestage import ScaleStage, open_stage, setting
from bench.stage import create_namespace, in_parallel
from localcluster import process
from localcluster.api import Api

JOBS = setting("SCALE_JOBS", 1000, tiny=3)
REPLICAS = setting("SCALE_REPLICAS", 10, tiny=3)
NODES = setting("SCALE_NODES", 5000, tiny=3)
NAMESPACE = "scale"
_LIMIT_SECONDS = 60.0 * setting("SCALE_MINUTES", 120, tiny=3)
_SHOW_SECONDS = 30.0
_POLL_SECONDS = 0.2
_PATH = TFJOBS.format(NAMESPACE)

Object = dict[str, Any]


class Phases:
    """The phase of each job, from a watch."""

    def __init__(self) -> None:
        self._by_job: dict[str, str] = {}
        self._lock = threading.Lock()

    def record(self, job: Object) -> None:
        with self._lock:
            self._by_job[job["metadata"]["name"]] = (job.get("status") or {}).get("phase", "")

    def counts(self) -> Counter[str]:
        with self._lock:
            return Counter(self._by_job.values())


def report_run() -> bool:
    """Prints the figures. Raises TimeoutError if the jobs do not end."""
    with open_stage("run", NODES, Times()) as stage, controller(stage.plane.kubeconfig, "--qps=0") as running:
        running.wait_ready()
        create_namespace(stage.api, NAMESPACE)
        before = _cpu_of_all(stage, running)
        seconds = _run_all(stage, running)
        cpu = {name: round(value - before[name], 1) for name, value in _cpu_of_all(stage, running).items()}
        _report_costs(stage, running, seconds, cpu)
        lags = lags_of(stage.audit, NAMESPACE)
    for name, values in (("event", lags.master), ("figures", lags.replicas)):
        extra: Object = {
            "median": round(rank(values, 0.5), 4),
            "highest": round(max(values), 3),
            "changes": len(values),
        }
        report(f"scale_{name}_to_write_p99", "s", [rank(values, 0.99)], **extra)
    return True


def _run_all(stage: ScaleStage, running: Controller) -> float:
    """Runs all jobs and returns the seconds."""
    phases, begin, shown_at = Phases(), time.monotonic(), 0.0
    follower = Follower(Api.from_kubeconfig(stage.plane.kubeconfig), _PATH, phases.record)
    creator = threading.Thread(target=_create, args=(stage.api,), name="scale-create", daemon=True)
    creator.start()
    try:
        while (counts := phases.counts())["Done"] < JOBS:
            seconds = time.monotonic() - begin
            if counts["Failed"] or seconds > _LIMIT_SECONDS:
                raise TimeoutError(f"after {seconds:.0f} s the jobs' phases are {dict(counts)}")
            if seconds - shown_at >= _SHOW_SECONDS:
                shown_at = seconds
                progress(f"{seconds:5.0f} s  {dict(counts)}, controller {running.cpu_seconds():.0f} s CPU")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - begin
    finally:
        follower.close()
        creator.join()


def _create(api: Api) -> None:
    in_parallel(lambda number: api.create(_PATH, master_and_workers(f"job-{number:05d}", REPLICAS)), range(JOBS))


def _cpu_of_all(stage: ScaleStage, running: Controller) -> dict[str, float]:
    """Returns the CPU seconds of each program."""
    programs = stage.plane.state().programs.items()
    pids = {name: each.identity.pid for name, each in programs if each.identity and process.is_alive(each.identity)}
    return {name: usage.cpu_seconds(pid) for name, pid in {**pids, "controller": running.pid}.items()}


def _report_costs(stage: ScaleStage, running: Controller, seconds: float, cpu: dict[str, float]) -> None:
    sizes: Object = {"jobs": JOBS, "replicas": REPLICAS, "nodes": NODES, "pods": JOBS * REPLICAS}
    pods = stage.api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods", query={"limit": "1"})["metadata"]
    progress(f"pods at the end: {pods.get('remainingItemCount', 0) + 1}; CPU seconds: {cpu}")
    requests = running.requests()
    report("scale_seconds", "s", [seconds], **sizes)
    report("scale_cpu", "s", [running.cpu_seconds()], per_job=round(running.cpu_seconds() / JOBS, 4), by_program=cpu)
    report("scale_rss", "MB", [usage.peak_resident_bytes(running.pid) / 1e6])
    report("scale_requests", "requests/job", [sum(requests.values()) / JOBS], by_method=requests)
