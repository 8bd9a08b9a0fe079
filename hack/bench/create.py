"""`make bench-create`: how fast TFJobs become children and pods, and the cost of that.

- `children_per_second`: 200 jobs of 5 replicas exist when the controller starts; children per second from the first of
  the 2,000 Jobs and Services to the last, as observed by watches. Baseline: bare POSTs of the same bodies by as many
  threads, observed by the same watches. Only the API server runs beside it: kube-controller-manager does not act on the
  children.
- `children_per_second_contract`: the same, but the baseline also does what the contract requires of the owner of these
  children: it writes a job's RuntimeId before its first child, and watches TFJobs, Jobs and Services.
- `children_per_second_busy`, `children_per_second_busy_contract`: the same while all controllers of Kubernetes process
  the children, in all three cases.
- `tfjobs_pods_exist`: the controller is idle; seconds from the first POST of 200 jobs until all 1,000 pods (which the
  Job controller creates) and Services exist. Baseline: bare POSTs of the 1,000 child Jobs and Services, until the Job
  controller has created the pods: the remaining time if the controller had no cost. `tfjobs_cpu` and `tfjobs_rss` are
  what the controller has used from its start until then.
- `requests_per_…`, `first_child_p99`: see bench.single.
- TrainJobs: see bench.trainjobs.

The controller has default flags except for `--qps=0`.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec

from bench.bare import Write, posts, send_all
from bench.controller import controller
from bench.jobs import (
    JOBS,
    PODS,
    SERVICES,
    TFJOBS,
    Object,
    children_of,
    master_and_workers,
)
from bench.report import Reach, alternate, progress, report, size
from bench.single import report_single
from bench.stage import Stage, in_parallel, namespace, stage, unique
from bench.trainjobs import report_trainjob_memory, report_trainjob_pods
from bench.watcher import Watcher
from localcluster.programs import Options
from tfjob_controller.kube.requester import MERGE_PATCH
from tfjob_controller.options import RunOptions

JOB_COUNT = size(200, tiny=3)
REPLICAS = size(5, tiny=2)
CHILDREN = JOB_COUNT * REPLICAS
# The maximum number of concurrent requests of the controller: workers write as well (controller.writer).
THREADS = RunOptions().workers + RunOptions().concurrent_writes
LIMIT_SECONDS = 300.0
# No controller creates pods and endpoints for the children. (The flag adds to the list of the control plane.)
_ABSENT = ("job", "endpoints", "endpointslice", "endpointslice-mirroring")
QUIET = Options(controller_manager_flags=("--controllers=" + ",".join(f"-{name}-controller" for name in _ABSENT),))

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Load:
    """The jobs of a round: where they are created, the manifest of each, and the children of an owner.

    The second argument of `manifest` adds what the controller would write before it creates the first child.
    """

    path: str
    replicas: int
    manifest: Callable[[int, bool], Object]
    children: Callable[[Object], tuple[list[Object], list[Object]]]

    @property
    def child_count(self) -> int:
        return JOB_COUNT * self.replicas


def by_controller(stage: Stage, load: Load) -> float:
    """Returns the children per second of a round with the controller."""
    with namespace(stage.api, _name()) as space, ExitStack() as open_:
        _submit(stage, space, load)
        watchers = _watch(open_, stage, JOBS.format(space), SERVICES.format(space))
        open_.enter_context(controller(stage.kubeconfig, f"--namespace={space}", "--qps=0"))
        return _children_per_second(watchers, load)


def by_posts(stage: Stage, load: Load) -> float:
    """Returns the children per second of bare POSTs. Their owners exist, or they would be garbage collected."""
    with namespace(stage.api, _name()) as space, ExitStack() as open_:
        owners = _submit(stage, space, load, named=True)
        wanted = [post for owner in owners for post in _child_posts(space, load, owner)]
        watchers = _watch(open_, stage, JOBS.format(space), SERVICES.format(space))
        send_all(stage.kubeconfig, wanted, THREADS)
        return _children_per_second(watchers, load)


def by_contract(stage: Stage, load: Load) -> float:
    """Returns the children per second of a controller's minimum: RuntimeIds, children, and three watches."""
    with namespace(stage.api, _name()) as space, ExitStack() as open_:
        owners = _submit(stage, space, load)
        wanted = [_named_first(space, load, owner, number) for number, owner in enumerate(owners)]
        watchers = _watch(open_, stage, JOBS.format(space), SERVICES.format(space))
        for path in (TFJOBS, JOBS, SERVICES):
            open_.enter_context(Watcher(stage.api, path.format(space)))
        send_all(stage.kubeconfig, wanted, THREADS)
        return _children_per_second(watchers, load)


def _children_per_second(watchers: Sequence[Watcher], load: Load) -> float:
    last = max(watcher.wait_for(load.child_count, LIMIT_SECONDS) for watcher in watchers)
    return (2 * load.child_count - 1) / (last - min(watcher.first for watcher in watchers))


def report_children(stage: Stage, name: str) -> bool:
    """Prints both figures. Returns False if one missed its target."""
    values, posted, least = alternate(*_on_load(stage, TFJOB_LOAD, by_controller, by_posts, by_contract))
    extra = {"jobs": JOB_COUNT, "replicas": REPLICAS, "threads": THREADS}
    reach = Reach(min_ratio=0.9)
    ok = report(name, "1/s", values, baselines=posted, reach=reach, **extra)
    return ok & report(f"{name}_contract", "1/s", values, baselines=least, reach=reach, **extra)


def report_pods(stage: Stage) -> bool:
    """Prints `tfjobs_pods_exist` and its costs. Returns False if one missed its target."""
    cpu_seconds: list[float] = []
    resident_megabytes: list[float] = []

    def pods_by_controller(stage: Stage) -> float:
        with namespace(stage.api, _name()) as space, ExitStack() as open_:
            watchers = _watch(open_, stage, PODS.format(space), SERVICES.format(space))
            running = open_.enter_context(controller(stage.kubeconfig, f"--namespace={space}", "--qps=0"))
            running.wait_ready()
            begin = time.monotonic()
            _submit(stage, space, TFJOB_LOAD)
            last = max(watcher.wait_for(CHILDREN, LIMIT_SECONDS) for watcher in watchers)
            cpu_seconds.append(running.cpu_seconds())
            resident_megabytes.append(running.resident_bytes() / 1e6)
            return last - begin

    values, posted = alternate(*_on(stage, pods_by_controller, pods_by_job_posts))
    extra = {"pods": CHILDREN, "threads": THREADS}
    ok = report("tfjobs_pods_exist", "s", values, baselines=posted, reach=Reach(max_ratio=1.25), **extra)
    ok &= report("tfjobs_cpu", "s", cpu_seconds)
    return ok & report("tfjobs_rss", "MB", resident_megabytes)


def pods_by_job_posts(stage: Stage) -> float:
    """Returns the seconds from the first bare POST of a child Job until the Job controller has created all pods."""
    with namespace(stage.api, _name()) as space, ExitStack() as open_:
        owners = _submit(stage, space, TFJOB_LOAD, named=True)
        wanted = [post for owner in owners for post in _child_posts(space, TFJOB_LOAD, owner)]
        watchers = _watch(open_, stage, PODS.format(space), SERVICES.format(space))
        sent = send_all(stage.kubeconfig, wanted, THREADS)
        return max(watcher.wait_for(CHILDREN, LIMIT_SECONDS) for watcher in watchers) - sent.begin


def _on(stage: Stage, *rounds: Callable[[Stage], float]) -> list[Callable[[], float]]:
    return [functools.partial(each, stage) for each in rounds]


def _on_load(stage: Stage, load: Load, *rounds: Callable[[Stage, Load], float]) -> list[Callable[[], float]]:
    return [functools.partial(each, stage, load) for each in rounds]


def _watch(open_: ExitStack, stage: Stage, *paths: str) -> list[Watcher]:
    return [open_.enter_context(Watcher(stage.api, path, "kubeflow.org")) for path in paths]


def _submit(stage: Stage, space: str, load: Load, *, named: bool = False) -> Sequence[Object]:
    """Creates all jobs; with `named` they have the names that the controller would assign."""
    path = load.path.format(space)
    return in_parallel(lambda number: stage.api.create(path, load.manifest(number, named)), range(JOB_COUNT))


def _manifest(number: int, named: bool) -> Object:
    manifest = master_and_workers(f"job-{number:03d}", REPLICAS)
    if named:
        manifest["spec"]["RuntimeId"] = f"r{number:03d}"
    return manifest


TFJOB_LOAD = Load(TFJOBS, REPLICAS, _manifest, children_of)


def _child_posts(space: str, load: Load, owner: Object) -> Iterator[Write]:
    """Yields the requests in the controller's order."""
    jobs, services = load.children(owner)
    for pair in zip(posts(JOBS.format(space), jobs), posts(SERVICES.format(space), services), strict=True):
        yield from pair


def _named_first(space: str, load: Load, owner: Object, number: int) -> Write:
    """Returns the PATCH of the RuntimeId, followed by the children."""
    identity = {"spec": {"RuntimeId": f"r{number:03d}"}}
    children = list(_child_posts(space, load, {**owner, "spec": owner["spec"] | identity["spec"]}))
    path = f"{load.path.format(space)}/{owner['metadata']['name']}"
    return Write(path, msgspec.json.encode(identity), "PATCH", MERGE_PATCH, then=children)


def _name() -> str:
    return unique(f"bench-create-{next(_numbers)}")


def main() -> int:
    """Prints all figures. Returns 1 if one missed its target."""
    progress("children, with the API server alone")
    with stage(QUIET) as quiet:
        ok = report_children(quiet, "children_per_second")
    progress("children and pods, with all controllers of Kubernetes")
    with stage() as busy:
        ok &= report_children(busy, "children_per_second_busy")
        ok &= report_pods(busy)
        ok &= report_trainjob_pods(busy)
        ok &= report_trainjob_memory(busy)
    ok &= report_single()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
