"""`make bench-logs`, second part: the same in a cluster, with everything that the controller does with the values.

100 TrainJobs run on a real control plane, on a node of a fake kubelet whose logs come from bench.logserver, so that
each line passes through the real API server. The figure is the CPU of the controller's process, including status writes
and their watch events, in % of one core. Rounds alternate with the same jobs whose logs have no lines.

- `logs_controller_cpu`: 100 lines a second in each log, every tenth with metrics, so that each job's status changes all
  the time.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from bench import logserver
from bench.controller import Controller, controller
from bench.report import ROUNDS, Reach, progress, report, size
from bench.stage import Stage, in_parallel, stage, unique, wait
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet

JOBS = size(100, tiny=3)
LINES_PER_SECOND = size(100, tiny=20)
SECONDS = size(20, tiny=2)
SETTLING_SECONDS = float(size(8, tiny=0))
REACH_PERCENT = 10.0
NAMESPACE = unique("bench-logs")
NODE = "bench-logs"

_TRAINJOBS = f"/apis/kubeflow.org/v2alpha1/namespaces/{NAMESPACE}/trainjobs"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class Round(NamedTuple):
    """CPU in % of one core, and the writes per second."""

    cpu: float
    writes_per_second: float


def trainjob(number: int) -> dict[str, Any]:
    spec = {"framework": "plain", "numNodes": 1, "trainer": {"image": "none", "command": ["train"]}}
    return {
        "apiVersion": "kubeflow.org/v2alpha1",
        "kind": "TrainJob",
        "metadata": {"name": f"job-{number:03}", "namespace": NAMESPACE},
        "spec": spec,
    }


def one_round(stage: Stage, lines_per_second: int) -> Round:
    """Runs all jobs, from their creation to their deletion."""
    with tempfile.TemporaryDirectory() as folder, logserver.running(Path(folder), lines_per_second) as kubeconfig:
        _serve_logs_of_node(stage.api, kubeconfig)
        with controller(stage.kubeconfig, f"--namespace={NAMESPACE}") as running:
            running.wait_ready()
            in_parallel(lambda number: stage.api.create(_TRAINJOBS, trainjob(number)), range(JOBS))
            wait(lambda: _are_running(stage.api, with_metrics=lines_per_second > 0), "not all jobs run")
            time.sleep(SETTLING_SECONDS)
            found = _measured(running)
            in_parallel(lambda number: stage.api.delete(f"{_TRAINJOBS}/job-{number:03}"), range(JOBS))
            wait(lambda: not stage.api.get(_PODS)["items"], "not all pods are deleted")
    return found


def _serve_logs_of_node(api: Api, kubeconfig: Path) -> None:
    """Makes the API server request logs from this server."""
    url = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    endpoints = {"kubeletEndpoint": {"Port": urlsplit(url).port}}
    status = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": endpoints}
    api.patch(f"/api/v1/nodes/{NODE}/status", {"status": status})


def _are_running(api: Api, *, with_metrics: bool) -> bool:
    statuses = [job.get("status", {}) for job in api.get(_TRAINJOBS)["items"]]
    ready = [each for each in statuses if each.get("state") == "RUNNING" and (each.get("metrics") or not with_metrics)]
    return len(ready) == JOBS


def _measured(running: Controller) -> Round:
    cpu, writes, begin = running.cpu_seconds(), running.requests().get("PATCH", 0), time.monotonic()
    time.sleep(SECONDS)
    seconds = time.monotonic() - begin
    cpu, writes = running.cpu_seconds() - cpu, running.requests().get("PATCH", 0) - writes
    return Round(100.0 * cpu / seconds, writes / seconds)


def main() -> int:
    """Prints the figure. Returns 1 if it missed its target."""
    busy, silent = list[Round](), list[Round]()
    with stage() as opened:
        opened.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        with FakeKubelet(Api.from_kubeconfig(opened.kubeconfig), namespace=NAMESPACE, nodes=(NODE,)):
            for number in range(1, ROUNDS + 1):
                silent.append(one_round(opened, 0))
                busy.append(one_round(opened, LINES_PER_SECOND))
                found = f"{busy[-1].cpu:.3g} %, {busy[-1].writes_per_second:.3g} writes/s"
                progress(f"round {number} of {ROUNDS}: {found}; silent {silent[-1].cpu:.3g} %")
        opened.api.delete(f"/api/v1/namespaces/{NAMESPACE}")
        opened.api.delete(f"/api/v1/nodes/{NODE}")
    extra: dict[str, Any] = {
        "jobs": JOBS,
        "silent": round(statistics.median(each.cpu for each in silent), 2),
        "writes_per_second": round(statistics.median(each.writes_per_second for each in busy), 1),
    }
    values, reach = [each.cpu for each in busy], Reach(max_value=REACH_PERCENT)
    return 0 if report("logs_controller_cpu", "% of a core", values, reach=reach, **extra) else 1


if __name__ == "__main__":
    sys.exit(main())
