"""The cost of a new job while many finished ones are kept (a part of `make bench-scale`).

Three namespaces contain 100, 1,000 and 5,000 finished TFJobs, each with a child Job and a Service, like finished jobs
of one replica (bench.scaleplant). Each namespace has its own controller, so that rounds alternate on the same control
plane. A round is 50 new jobs of 4 replicas, from their creation until all have succeeded. It measures the CPU of the
namespace's controller and the requests that it sent, including watches and events, for each new job.

- `kept_cpu_1000`, `kept_cpu_5000`: CPU per new job; baseline: with 100 kept. `kept_requests_1000`,
  `kept_requests_5000`: the same for requests. A constant cost has a ratio of 1.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.controller import Controller, controller
from bench.jobs import JOBS, SERVICES, TFJOBS, master_and_workers
from bench.kwok import Times
from bench.report import ROUNDS, Reach, progress, report, size
from bench.scaleplant import plant
from bench.scalestage import WITHOUT_ENDPOINTS, ScaleStage, open_stage, setting
from bench.stage import create_namespace, in_parallel, rest, wait
from localcluster.api import Api

# The first is the baseline of the others.
KEPT = (size(100, tiny=1), size(1000, tiny=2), setting("SCALE_KEPT", 5000, tiny=3))
NAMES = (100, 1000, 5000)
NEW_JOBS = setting("SCALE_NEW_JOBS", 50, tiny=2)
REPLICAS = setting("SCALE_NEW_REPLICAS", 4, tiny=2)
TIMES = Times(worker=(2, 4), master=(8, 10))
WARM_UPS = size(1, tiny=0)
NODES = size(50, tiny=3)
MAX_RATIO = 1.15
_AFTERWARDS_SECONDS = float(size(3, tiny=0))


@dataclass(frozen=True, slots=True)
class FilledNamespace:
    """A namespace with `kept` finished jobs, and its controller."""

    namespace: str
    kept: int
    running: Controller


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds and requests of a new job."""

    cpu: float
    requests: float


def report_kept() -> bool:
    """Prints the figures. Returns False if one missed its target."""
    with open_stage("kept", NODES, TIMES, WITHOUT_ENDPOINTS) as stage, contextlib.ExitStack() as open_:
        filled_namespaces = [open_.enter_context(_filled_namespace(stage, kept)) for kept in KEPT]
        rest(stage.api)
        costs = _rounds(stage.api, filled_namespaces)
    ok = True
    for number, name in enumerate(NAMES[1:], start=1):
        extra = {"kept": KEPT[number], "kept_baseline": KEPT[0], "new_jobs": NEW_JOBS, "replicas": REPLICAS}
        reach = Reach(max_ratio=MAX_RATIO)
        for field, unit in (("cpu", "s/job"), ("requests", "requests/job")):
            values, baselines = ([getattr(cost, field) for cost in costs[each]] for each in (number, 0))
            ok &= report(f"kept_{field}_{name}", unit, values, baselines=baselines, reach=reach, **extra)
    return ok


def _rounds(api: Api, filled_namespaces: Sequence[FilledNamespace]) -> list[list[Cost]]:
    """Returns the costs of each namespace, without the first round, which warms up the controllers."""
    numbers, costs = itertools.count(), [list[Cost]() for _ in filled_namespaces]
    for counts in [False] * WARM_UPS + [True] * ROUNDS:
        for filled, found in zip(filled_namespaces, costs, strict=True):
            cost = _round(api, filled, next(numbers))
            progress(f"{filled.kept} kept: {cost.cpu * 1000:.1f} ms CPU and {cost.requests:.1f} requests for a new job")
            found += [cost] if counts else []
    return costs


def _round(api: Api, filled: FilledNamespace, number: int) -> Cost:
    path = TFJOBS.format(filled.namespace)
    names = [f"new-{number}-{each}" for each in range(NEW_JOBS)]
    cpu, requests = filled.running.cpu_seconds(), sum(filled.running.requests().values())
    in_parallel(lambda name: api.create(path, master_and_workers(name, REPLICAS)), names)
    wait(lambda: _are_done(api, path, names), "not all new jobs have succeeded")
    time.sleep(_AFTERWARDS_SECONDS)
    cpu, requests = filled.running.cpu_seconds() - cpu, sum(filled.running.requests().values()) - requests
    return Cost(cpu / NEW_JOBS, requests / NEW_JOBS)


def _are_done(api: Api, path: str, names: Sequence[str]) -> bool:
    """Reports whether all jobs are done. It reads them one by one, since a list would contain all kept jobs."""
    while names:
        if api.get(f"{path}/{names[-1]}").get("status", {}).get("phase") != "Done":
            return False
        names = names[:-1]
    return True


@contextlib.contextmanager
def _filled_namespace(stage: ScaleStage, kept: int) -> Iterator[FilledNamespace]:
    namespace, begin = f"kept-{kept}", time.monotonic()
    create_namespace(stage.api, namespace)
    plant(stage.plane.folder, namespace, kept)
    for path in (TFJOBS, JOBS, SERVICES):
        wait(functools.partial(_are_cached, stage.api, path.format(namespace), kept), f"{kept} {path} do not exist")
    progress(f"{kept} finished jobs after {time.monotonic() - begin:.0f} s")
    with controller(stage.plane.kubeconfig, f"--namespace={namespace}", "--qps=0") as running:
        running.wait_ready()
        yield FilledNamespace(namespace, kept, running)


def _are_cached(api: Api, path: str, count: int) -> bool:
    """Reports whether the server's watch cache contains all objects that were written to etcd."""
    found = api.request("GET", path, query={"limit": "1"})
    return bool(len(found["items"]) + found["metadata"].get("remainingItemCount", 0) == count)
