"""How fast TrainJobs become pods, and what that costs: figures of `make bench-create`.

- `trainjobs_pods_exist`: seconds from the first POST of 100 TrainJobs of 8 nodes until all 800 pods, which the Job
  controller creates, exist. Baseline: bare POSTs of the same Indexed Jobs by as many threads. `trainjobs_cpu` is the
  CPU time of the controller from its start until then.
- `trainjob_1x500_pods_exist`: the same for one TrainJob of 500 nodes.
- `trainjobs_rss`: resident set of the controller once 1,000 TrainJobs of 8 nodes run. Their kubelet is a fake one,
  which has no logs to follow.

The controller has default flags except for `--qps=0`.
"""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from typing import Any

from bench.bare import posts, send_all
from bench.controller import controller
from bench.jobs import JOBS, PODS, TRAINJOBS, Object, children_of_trainjob, trainjob
from bench.report import Reach, alternate, report, size
from bench.stage import Stage, in_parallel, namespace, unique, wait
from bench.watcher import Watcher
from localcluster.fakekubelet import FakeKubelet
from tfjob_controller.options import RunOptions

JOB_COUNT = size(100, tiny=3)
NODES = size(8, tiny=2)
NODES_OF_LARGE = size(500, tiny=5)
RUNNING = size(1000, tiny=3)
THREADS = RunOptions().workers + RunOptions().concurrent_writes
LIMIT_SECONDS = 300.0

_numbers = itertools.count()


def report_trainjob_pods(stage: Stage) -> bool:
    """Prints the figures of speed and CPU time. Returns False if one missed its target."""
    cpu_seconds: list[float] = []
    many = alternate(
        lambda: _by_controller(stage, JOB_COUNT, NODES, cpu_seconds), lambda: _by_posts(stage, JOB_COUNT, NODES)
    )
    extra: dict[str, Any] = {"jobs": JOB_COUNT, "nodes": NODES, "threads": THREADS}
    ok = report("trainjobs_pods_exist", "s", many[0], baselines=many[1], reach=Reach(max_ratio=1.6), **extra)
    ok &= report("trainjobs_cpu", "s", cpu_seconds, reach=Reach(max_value=2.5), **extra)
    large = alternate(lambda: _by_controller(stage, 1, NODES_OF_LARGE, []), lambda: _by_posts(stage, 1, NODES_OF_LARGE))
    reach = Reach(max_ratio=1.3)
    return ok & report(
        "trainjob_1x500_pods_exist", "s", large[0], baselines=large[1], reach=reach, nodes=NODES_OF_LARGE
    )


def report_trainjob_memory(stage: Stage) -> bool:
    """Print `trainjobs_rss`; False if it is too much."""
    with namespace(stage.api, _name()) as space, ExitStack() as open_:
        open_.enter_context(FakeKubelet(stage.api, namespace=space))
        watcher = open_.enter_context(Watcher(stage.api, PODS.format(space), "kubeflow.org"))
        running = open_.enter_context(controller(stage.kubeconfig, f"--namespace={space}", "--qps=0"))
        running.wait_ready()
        path = TRAINJOBS.format(space)
        in_parallel(lambda number: stage.api.create(path, trainjob(f"train-{number:04d}", NODES)), range(RUNNING))
        watcher.wait_for(RUNNING * NODES, LIMIT_SECONDS)
        wait(
            lambda: all(each.get("status", {}).get("phase") == "Running" for each in stage.api.list(path)),
            "not all run",
        )
        resident = running.resident_bytes() / 1e6
    return report("trainjobs_rss", "MB", [resident], reach=Reach(max_value=150.0), jobs=RUNNING, nodes=NODES)


def _by_controller(stage: Stage, jobs: int, nodes: int, cpu_seconds: list[float]) -> float:
    with namespace(stage.api, _name()) as space, ExitStack() as open_:
        watcher = open_.enter_context(Watcher(stage.api, PODS.format(space), "kubeflow.org"))
        running = open_.enter_context(controller(stage.kubeconfig, f"--namespace={space}", "--qps=0"))
        running.wait_ready()
        begin = time.monotonic()
        path = TRAINJOBS.format(space)
        in_parallel(lambda number: stage.api.create(path, trainjob(f"train-{number:03d}", nodes)), range(jobs))
        last = watcher.wait_for(jobs * nodes, LIMIT_SECONDS)
        cpu_seconds.append(running.cpu_seconds())
        return last - begin


def _by_posts(stage: Stage, jobs: int, nodes: int) -> float:
    with namespace(stage.api, _name()) as space, Watcher(stage.api, PODS.format(space), "kubeflow.org") as watcher:
        bodies = [_bare_job(space, number, nodes) for number in range(jobs)]
        sent = send_all(stage.kubeconfig, posts(JOBS.format(space), bodies), THREADS)
        return watcher.wait_for(jobs * nodes, LIMIT_SECONDS) - sent.begin


def _bare_job(space: str, number: int, nodes: int) -> Object:
    """Returns the Indexed Job of a TrainJob, without an owner, since the TrainJob does not exist on the server."""
    manifest = trainjob(f"train-{number:03d}", nodes)
    manifest["metadata"] |= {"namespace": space, "uid": f"00000000-0000-4000-8000-{number:012d}"}
    job: Object = children_of_trainjob(manifest)[0][0]
    return {**job, "metadata": {name: value for name, value in job["metadata"].items() if name != "ownerReferences"}}


def _name() -> str:
    return unique(f"bench-trainjobs-{next(_numbers)}")
