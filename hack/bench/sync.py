"""`make bench-sync`: the cost of the sync of a job that requires no action.

The real controller creates a job of 100 replicas on a real control plane; a fake kubelet reports its pods. Once nothing
is written any more, the caches of a second controller are filled from the same API server in this process, and its
reconciler syncs the job repeatedly in one thread. The figures are milliseconds per sync, and all requests of its
transport in that time. The first sync, which plans the job, is reported separately: `first_sync` is the cost of a
controller's start for each running job.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench.jobs import TFJOBS, tfjob
from bench.report import ROUNDS, Reach, progress, report, size
from bench.stage import Stage, controller, namespace, rest, stage, unique, wait
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.tfjob.types import TFJOBS as TFJOBS_RESOURCE
from tfjob_controller.api.tfjob.types import TFJob
from tfjob_controller.controller.caches import ControllerCaches
from tfjob_controller.controller.outcome import DONE
from tfjob_controller.controller.reconciler import Reconciler
from tfjob_controller.controller.writer import Fanout
from tfjob_controller.kinds.tfjob.kind import KIND, TFJobAdapter, TFJobCaches
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.events.recorder import EventRecorder
from tfjob_controller.kube.http.transport import Transport
from tfjob_controller.telemetry.metrics import Metrics
from tfjob_controller.util.clock import RealClock

REPLICAS = size(100, tiny=2)
SYNCS = size(1000, tiny=10)
NAMESPACE = unique("bench-sync")
NAME = "job"
KEY = f"{NAMESPACE}/{NAME}"


@dataclass(frozen=True, slots=True)
class Bench:
    """A reconciler with real caches, called only by this module."""

    reconciler: Reconciler[TFJob]
    transport: Transport


@contextlib.contextmanager
def bench(stage: Stage) -> Iterator[Bench]:
    """Yields a reconciler whose caches are filled."""
    clock = RealClock()
    transport = Transport(load_config(str(stage.kubeconfig)), qps=0)
    jobs = TFJobCaches(transport, NAMESPACE, clock)
    caches = ControllerCaches(transport, NAMESPACE, clock, [jobs])
    store, metrics = jobs.jobs.store, Metrics("bench", [KIND.series])
    kind = TFJobAdapter(store, ControllerConfig(), random.Random(), restart_rules=True)  # noqa: S311 -- names
    client = ResourceClient(transport, TFJOBS_RESOURCE)
    recorder = EventRecorder(transport, clock, "bench", "bench")
    writer = caches.writer(Fanout(0))
    reconciler = Reconciler(kind, client, store, caches.snapshots(), writer, recorder, metrics.jobs[KIND.series], clock)
    caches.informers.start()
    try:
        wait(lambda: caches.informers.is_synced and not caches.informers.problems(), "caches are not filled")
        yield Bench(reconciler, transport)
    finally:
        caches.informers.stop(10.0)
        transport.close()


def measure(stage: Stage) -> tuple[float, float, int]:
    """Returns the milliseconds of the first sync, the median of the others, and the number of requests."""
    with bench(stage) as opened:
        before = opened.transport.statistics().requests
        milliseconds = [_sync(opened.reconciler) for _ in range(SYNCS)]
        requests = opened.transport.statistics().requests - before
        return milliseconds[0], statistics.median(milliseconds[1:]), requests


def _sync(reconciler: Reconciler[TFJob]) -> float:
    begin = time.perf_counter()
    outcome = reconciler.sync(KEY)
    milliseconds = (time.perf_counter() - begin) * 1000
    if outcome != DONE:
        raise RuntimeError(f"the sync was not empty: {outcome}")
    return milliseconds


def create_job(stage: Stage) -> None:
    """Creates a job and waits until all its pods run and its status shows that."""
    with controller(stage.kubeconfig, f"--namespace={NAMESPACE}") as running:
        running.wait_ready()
        stage.api.create(TFJOBS.format(NAMESPACE), tfjob(NAME, REPLICAS))
        wait(lambda: _are_all_ready(stage.api), "the job does not run")
        rest(stage.api)


def _are_all_ready(api: Api) -> bool:
    """Reports whether the status counts every replica as ready: counts are written seconds after the phase."""
    ready = api.get(f"{TFJOBS.format(NAMESPACE)}/{NAME}").get("status", {}).get("ready", {})
    return bool(ready.get("master") == "1/1" and ready.get("worker") == f"{REPLICAS - 1}/{REPLICAS - 1}")


def main() -> int:
    """Prints all figures. Returns 1 if one missed its target."""
    with stage() as ready, FakeKubelet(ready.api, namespace=NAMESPACE), namespace(ready.api, NAMESPACE):
        create_job(ready)
        progress(f"a job of {REPLICAS} replicas runs")
        rounds = [measure(ready) for _ in range(ROUNDS)]
        first, unchanged, requests = zip(*rounds, strict=True)
        ok = report("sync_unchanged", "ms", unchanged, reach=Reach(max_value=2.0), replicas=REPLICAS, syncs=SYNCS)
        ok &= report("sync_unchanged_requests", "requests", requests, reach=Reach(max_value=0))
        ok &= report("first_sync", "ms", first, replicas=REPLICAS)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
