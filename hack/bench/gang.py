"""`make bench-gang`: how fast gangs start, against kube-scheduler without gangs and with its own (alpha) gangs.

100 gangs of 10 pods on 200 nodes, all of them fit. In each of the three the same threads create the same bare pods, and
one watch sees them bound:

- ours: the Gangs are written, and the pods of each as soon as it is admitted; the gang scheduler and a kube-scheduler
  of its own bind them;
- native: a PodGroup for each gang and then its pods, on a control plane with the feature gates that this asks for;
- stock: the pods only.

- `gangs_bound`: seconds from the first create of anything to the last pod bound; baseline native.
- `gangs_bound_stock`: the same, baseline stock.
- `gang_latency`: median over gangs of the time from the first create of one of its pods until all are bound; native.
- `gang_spread_p95`: P95 over gangs of the time from its first pod bound to its last; native.
- `gangs_partly_bound`: the sum of that, gang-seconds; native.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import urllib3

from bench.report import ROUNDS, Reach, progress, report, size
from bench.stage import in_parallel, rest
from chaos.stage import install_crds
from localcluster import ports, process, stack, state
from localcluster.api import Api, Watch
from localcluster.controlplane import ControlPlane
from localcluster.extender import Extender
from localcluster.fakekubelet import make_node
from localcluster.gangscheduler import NAME, GangScheduler
from localcluster.programs import LOOPBACK, Options

GANGS = size(100, tiny=3)
MEMBERS = size(10, tiny=2)
NODES = size(200, tiny=3)
NODE = {"cpu": "8", "memory": "32Gi", "pods": "110"}
THREADS = 16
LIMIT_SECONDS = 180.0
PREFIX = "scheduling.kubeflow.org"
_GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
NATIVE = Options(
    apiserver_flags=(_GATES, "--runtime-config=scheduling.k8s.io/v1alpha2=true"),
    controller_manager_flags=(_GATES,),
    scheduler_flags=(_GATES,),
)

Object = dict[str, Any]
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds; `spreads` one for each gang."""

    total: float
    latency: float
    spreads: Sequence[float]

    @property
    def spread_p95(self) -> float:
        return sorted(self.spreads)[int(0.95 * (len(self.spreads) - 1))]


class Clock:
    """When the pods of a namespace were created, and when a watch saw them bound. Threads: any."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._changed = threading.Condition()
        self._created: dict[str, float] = {}
        self._bound: dict[str, dict[str, float]] = {}
        self._count = 0
        self._begin = time.monotonic()
        self._is_over = threading.Event()
        self._watch = self._open()
        self._thread = threading.Thread(target=self._run, name="bench-bound", daemon=True)

    def __enter__(self) -> Clock:
        self._thread.start()
        self._begin = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._watch.close()
        self._thread.join(5.0)

    def create(self, gang: str, member: str, body: Object) -> None:
        """One pod of this gang."""
        now = time.monotonic()
        with self._changed:
            self._created.setdefault(gang, now)
        self._api.create(self._path, body)

    def result(self) -> Round:
        """Once all are bound. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._count >= GANGS * MEMBERS, LIMIT_SECONDS):
                raise TimeoutError(f"{self._count} of {GANGS * MEMBERS} pods bound after {LIMIT_SECONDS:.0f} s")
            moments = {gang: sorted(pods.values()) for gang, pods in self._bound.items()}
        latencies = [found[-1] - self._created[gang] for gang, found in moments.items()]
        spreads = [found[-1] - found[0] for found in moments.values()]
        return Round(max(found[-1] for found in moments.values()) - self._begin, statistics.median(latencies), spreads)

    def _run(self) -> None:
        """A watch that the server ends begins anew, with what is there: the moments of some may then be a bit late."""
        while not self._is_over.is_set():
            with contextlib.suppress(urllib3.exceptions.HTTPError, OSError, ValueError):
                for kind, pod in self._watch:
                    if kind == "ADDED":
                        self._take(pod, time.monotonic())
            if not self._is_over.is_set():
                progress("the watch of bound pods ended: opened again")
                self._watch = self._open()

    def _open(self) -> Watch:
        return self._api.watch(self._path, {"fieldSelector": "spec.nodeName!="})

    def _take(self, pod: Object, now: float) -> None:
        meta = pod["metadata"]
        with self._changed:
            known = self._bound.setdefault(meta["labels"]["gang"], {})
            if meta["name"] not in known:
                known[meta["name"]] = now
                self._count += 1
                self._changed.notify_all()


def ours(api: Api, namespace: str) -> Round:
    """The pods of each gang as soon as it is admitted."""
    path = f"/apis/{PREFIX}/v1alpha1/namespaces/{namespace}/gangs"
    with ThreadPoolExecutor(THREADS) as pool, Clock(api, namespace) as clock, Owner(api, path, pool, clock):
        list(pool.map(lambda number: api.create(path, _gang(number)), range(GANGS)))
        return clock.result()


class Owner:
    """Makes the pods of gangs that are admitted."""

    def __init__(self, api: Api, path: str, pool: ThreadPoolExecutor, clock: Clock) -> None:
        self._api = api
        self._path = path
        self._pool = pool
        self._clock = clock
        self._done: set[str] = set()
        self._is_over = threading.Event()
        self._watch = api.watch(path)
        self._thread = threading.Thread(target=self._run, name="bench-owner", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._watch.close()
        self._thread.join(5.0)

    def _run(self) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(urllib3.exceptions.HTTPError, OSError, ValueError):
                for _, gang in self._watch:
                    self._take(gang)
            if not self._is_over.is_set():
                progress("the watch of gangs ended: opened again")
                self._watch = self._api.watch(self._path)

    def _take(self, gang: Object) -> None:
        name, status = gang["metadata"].get("name", ""), gang.get("status") or {}
        if status.get("phase") != "Admitted" or name in self._done:
            return
        self._done.add(name)
        for member in (member for place in status["placement"] for member in place["members"]):
            labels = {"gang": name, "member": member, "attempt": str(status["attempt"])}
            full = {f"{PREFIX}/{key}": value for key, value in labels.items()}
            self._pool.submit(self._clock.create, name, member, _pod(name, member, NAME, full))


def stock(api: Api, namespace: str) -> Round:
    """Pods and nothing else."""
    return _all_at_once(api, namespace, lambda number: None, is_grouped=False)


def native(api: Api, namespace: str) -> Round:
    """A PodGroup, and then its pods."""
    path = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{namespace}/podgroups"
    found = _all_at_once(api, namespace, lambda number: api.create(path, _pod_group(number)), is_grouped=True)
    pod = api.get(f"/api/v1/namespaces/{namespace}/pods/{_name(0)}-worker-0")
    if "schedulingGroup" not in pod["spec"]:
        raise RuntimeError("the server has dropped the pods' group: its feature gates are off")
    return found


def _all_at_once(api: Api, namespace: str, first: Callable[[int], object], *, is_grouped: bool) -> Round:
    with ThreadPoolExecutor(THREADS) as pool, Clock(api, namespace) as clock:

        def make(number: int) -> None:
            first(number)
            name = _name(number)
            group = {"schedulingGroup": {"podGroupName": name}} if is_grouped else {}
            for member in (f"worker-{index}" for index in range(MEMBERS)):
                clock.create(name, member, _pod(name, member, "default-scheduler", {}, **group))

        list(pool.map(make, range(GANGS)))
        return clock.result()


def _gang(number: int) -> Object:
    members = [{"name": "worker", "count": MEMBERS, "resources": {"cpu": "1"}}]
    metadata = {"name": _name(number)}
    return {"apiVersion": f"{PREFIX}/v1alpha1", "kind": "Gang", "metadata": metadata, "spec": {"members": members}}


def _pod_group(number: int) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": _name(number)},
        "spec": {"schedulingPolicy": {"gang": {"minCount": MEMBERS}}},
    }


def _pod(gang: str, member: str, scheduler: str, labels: Object, **spec: Any) -> Object:
    container = {"name": "main", "image": "localhost/none", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{gang}-{member}", "labels": {"gang": gang, **labels}},
        "spec": {"schedulerName": scheduler, "containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def _name(number: int) -> str:
    return f"gang-{number:03d}"


@contextlib.contextmanager
def plane(kind: str, options: Options) -> Iterator[tuple[ControlPlane, Api]]:
    """A control plane of its own with nodes. A name that test runs clean up after a crash, as they do with theirs."""
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{os.getpid()}-bench-{kind}")
    try:
        with ControlPlane(folder, options, owner=process.identify(os.getpid()), report=progress) as found:
            api = Api.from_kubeconfig(found.kubeconfig, pool_size=THREADS + 4)
            in_parallel(lambda number: make_node(api, f"node-{number:03d}", NODE), range(NODES))
            yield found, api
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def gang_scheduler(found: ControlPlane) -> Iterator[None]:
    """The programs of ours, as processes."""
    with contextlib.ExitStack() as open_, ports.reserve(2, LOOPBACK) as (port, probes_port):
        extender = Extender(found, port, probes_port)
        open_.callback(extender.kill)
        extender.start()
        extender.wait_ready()
        open_.enter_context(GangScheduler(found, extender.url))
        yield


def one_round(measure: Callable[[Api, str], Round], api: Api) -> Round:
    """In a namespace of its own, which is empty again when the next one begins."""
    name = f"bench-gang-{next(_numbers)}"
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    found = measure(api, name)
    api.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
    while api.list(f"/api/v1/namespaces/{name}/pods"):
        time.sleep(0.2)
    rest(api)
    progress(f"{measure.__name__}: {found.total:.2f} s, median latency {found.latency:.3f} s")
    return found


def measure_all() -> dict[str, list[Round]]:
    """Rounds of each, in turn."""
    rounds: dict[str, list[Round]] = {"native": [], "stock": [], "ours": []}
    with plane("ours", Options()) as (found, api), plane("native", NATIVE) as (_, native_api):
        install_crds(api)
        with gang_scheduler(found):
            for _ in range(ROUNDS):
                rounds["native"].append(one_round(native, native_api))
                rounds["stock"].append(one_round(stock, api))
                rounds["ours"].append(one_round(ours, api))
    return rounds


def main() -> int:
    """Print all figures; 1 if one missed what it must reach."""
    rounds = measure_all()

    def say(name: str, unit: str, value: Callable[[Round], float], baseline: str, reach: Reach) -> bool:
        values, others = ([value(each) for each in rounds[who]] for who in ("ours", baseline))
        return report(name, unit, values, baselines=others, reach=reach, gangs=GANGS, members=MEMBERS, nodes=NODES)

    ok = say("gangs_bound", "s", lambda each: each.total, "native", Reach(max_ratio=1 / 1.2))
    ok &= say("gangs_bound_stock", "s", lambda each: each.total, "stock", Reach(max_ratio=1 / 0.7))
    ok &= say("gang_latency", "s", lambda each: each.latency, "native", Reach(max_ratio=0.5))
    ok &= say("gang_spread_p95", "s", lambda each: each.spread_p95, "native", Reach(max_ratio=1.0))
    ok &= say("gangs_partly_bound", "s", lambda each: sum(each.spreads), "native", Reach(max_ratio=1.0))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
