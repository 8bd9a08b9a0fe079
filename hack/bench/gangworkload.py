"""Gangs of bare pods, as each of the three is given them, and the moments of their way.

`OURS`, `NATIVE` and `STOCK` are the contenders. Each starts a `Shape` in a namespace through a `Driver`, which creates
everything with the same 16 threads and sees pods bound by the same watch:

- ours: the Gangs, and the pods of each as soon as it is admitted;
- native: all PodGroups, then all pods;
- stock: all pods.

The order of gangs, and of pods where all are made at once, is as given or shuffled (`Order`).
"""

from __future__ import annotations

import contextlib
import itertools
import random
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import urllib3

from bench.gangplane import THREADS, Plane, delete_all
from bench.report import progress
from bench.stage import rest, wait
from localcluster.api import Api, RefusedError, Watch
from localcluster.gangscheduler import NAME

LIMIT_SECONDS = 180.0
PREFIX = "scheduling.kubeflow.org"
GANGS = f"/apis/{PREFIX}/v1alpha1/namespaces/{{}}/gangs"
POD_GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/{}/podgroups"
PODS = "/api/v1/namespaces/{}/pods"
DEFAULT_SCHEDULER = "default-scheduler"

Object = dict[str, Any]
Item = TypeVar("Item")
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Shape:
    """So many gangs of so many pods each, one CPU a pod."""

    gangs: int
    members: int

    @property
    def pods(self) -> int:
        return self.gangs * self.members

    @property
    def names(self) -> list[str]:
        return [f"gang-{number:03d}" for number in range(self.gangs)]


@dataclass(frozen=True, slots=True)
class Order:
    """The given one without a seed, else one that is decided by it."""

    seed: int | None = None

    def of(self, items: Sequence[Item]) -> list[Item]:
        found = list(items)
        if self.seed is not None:
            random.Random(self.seed).shuffle(found)  # noqa: S311 -- it has to come again
        return found


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds: from the first create of anything to the last pod bound; median over gangs from the first create of one
    of its pods until all are bound; and for each gang from its first pod bound to its last.
    """

    total: float
    latency: float
    spreads: Sequence[float]

    @property
    def spread_p95(self) -> float:
        return sorted(self.spreads)[int(0.95 * (len(self.spreads) - 1))]

    @property
    def partly_bound(self) -> float:
        """Gang-seconds."""
        return sum(self.spreads)


def round_of(begin: float, created: Mapping[str, float], bound: Mapping[str, Mapping[str, float]]) -> Round:
    """From moments: when each gang's first pod was created, and when each pod was bound."""
    moments = {gang: sorted(pods.values()) for gang, pods in bound.items()}
    latencies = [found[-1] - created.get(gang, begin) for gang, found in moments.items()]
    spreads = [found[-1] - found[0] for found in moments.values()]
    return Round(max(found[-1] for found in moments.values()) - begin, statistics.median(latencies), spreads)


class Follower:
    """One watch on a thread of its own: `take` gets what is added or changed.

    One that the server ends begins anew, with what is there: the moments of some may then be a bit late.
    """

    def __init__(self, api: Api, path: str, take: Callable[[Object], None], query: Mapping[str, str] | None = None):
        self._api = api
        self._path = path
        self._take = take
        self._query = query
        self._is_over = threading.Event()
        self._watch = self._open()
        self._thread = threading.Thread(target=self._run, name=f"bench-{path.rpartition('/')[2]}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._watch.close()
        self._thread.join(5.0)

    def _run(self) -> None:
        while True:
            with contextlib.suppress(urllib3.exceptions.HTTPError, OSError, ValueError):
                for kind, obj in self._watch:
                    if kind in ("ADDED", "MODIFIED"):
                        self._take(obj)
            if self._is_over.is_set():
                return
            progress(f"the watch of {self._path} ended: opened again")
            self._watch = self._open()

    def _open(self) -> Watch:
        return self._api.watch(self._path, self._query)


class Driver:
    """Creates, and sees pods bound, in one namespace. Threads: any.

    `label` is the pods' label that says whose they are. `when_whole` is told the gang of which `members` are bound.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        *,
        label: str = "gang",
        members: int = 0,
        when_whole: Callable[[str], None] = lambda gang: None,
    ) -> None:
        self.api = api
        self.namespace = namespace
        self._label = label
        self._members = members
        self._when_whole = when_whole
        self._pool = ThreadPoolExecutor(THREADS)
        self._open = contextlib.ExitStack()
        self._changed = threading.Condition()
        self._created: dict[str, float] = {}
        self._bound: dict[str, dict[str, float]] = {}
        self._count = 0
        self._failure: Exception | None = None
        self._is_over = False
        self._begin = 0.0

    def __enter__(self) -> Self:
        self.follow(PODS.format(self.namespace), self._take, {"fieldSelector": "spec.nodeName!="})
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_over = True
        self._open.close()
        self._pool.shutdown(cancel_futures=True)

    def begin(self) -> None:
        """Time counts from now, not from the start of the driver."""
        self._begin = time.monotonic()

    def follow(self, path: str, take: Callable[[Object], None], query: Mapping[str, str] | None = None) -> None:
        """Until the driver ends."""
        self._open.callback(Follower(self.api, path, take, query).close)

    def create_all(self, path: str, bodies: Sequence[Object]) -> None:
        """Returns when all are answered. Raises RefusedError, and urllib3's HTTPError."""
        list(self._pool.map(lambda body: self.api.create(path, body), bodies))

    def create_pod(self, gang: str, body: Object) -> None:
        """Later, in turn; an error is raised by who waits."""
        self.submit(lambda: self._create_pod(gang, body))

    def submit(self, task: Callable[[], object]) -> None:
        """Later, in turn; an error is raised by who waits. Not any more once the driver has ended."""
        with self._changed:
            if not self._is_over:
                self._pool.submit(self._guarded, task)

    def submit_later(self, seconds: float, task: Callable[[], object]) -> None:
        """The same after a while."""
        timer = threading.Timer(seconds, self.submit, [task])
        timer.daemon = True
        timer.start()

    def wait_bound(self, pods: int, timeout_seconds: float = LIMIT_SECONDS) -> None:
        """Until so many are. Raises TimeoutError, and whatever a task has raised."""
        with self._changed:
            is_so = self._changed.wait_for(lambda: self._failure or self._count >= pods, timeout_seconds)
            if self._failure is not None:
                raise self._failure
            if not is_so:
                raise TimeoutError(f"{self._count} of {pods} pods bound after {timeout_seconds:.0f} s")

    def bound(self) -> dict[str, int]:
        """How many pods of each gang are bound by now, or were."""
        with self._changed:
            return {gang: len(pods) for gang, pods in self._bound.items()}

    def round(self, pods: int) -> Round:
        """Once so many pods are bound. Raises as `wait_bound` does."""
        self.wait_bound(pods)
        with self._changed:
            return round_of(self._begin, self._created, self._bound)

    def _create_pod(self, gang: str, body: Object) -> None:
        with self._changed:
            self._created.setdefault(gang, time.monotonic())
        self.api.create(PODS.format(self.namespace), body)

    def _guarded(self, task: Callable[[], object]) -> None:
        try:
            task()
        except (RefusedError, urllib3.exceptions.HTTPError, OSError) as error:
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()

    def _take(self, pod: Object) -> None:
        now = time.monotonic()
        gang = pod["metadata"]["labels"][self._label]
        with self._changed:
            known = self._bound.setdefault(gang, {})
            if pod["metadata"]["name"] in known:
                return
            known[pod["metadata"]["name"]] = now
            self._count += 1
            self._changed.notify_all()
            is_whole = len(known) == self._members
        if is_whole:
            self._when_whole(gang)


@dataclass(frozen=True, slots=True)
class Contender:
    """`plane` is the kind of control plane that it needs; `groups` the path of what stands for its gangs, if any."""

    plane: str
    groups: str
    start: Callable[[Driver, Shape, Order], None]


def start_ours(driver: Driver, shape: Shape, order: Order) -> None:
    """The pods of each gang as soon as it is admitted."""
    made: set[str] = set()

    def look(gang: Object) -> None:
        name, status = gang["metadata"]["name"], gang.get("status") or {}
        if status.get("phase") == "Admitted" and name not in made:
            made.add(name)
            for member in order.of([member for place in status["placement"] for member in place["members"]]):
                driver.create_pod(name, _member(name, member, str(status["attempt"])))

    path = GANGS.format(driver.namespace)
    driver.follow(path, look)
    driver.create_all(path, [gang_body(name, shape.members) for name in order.of(shape.names)])


def start_native(driver: Driver, shape: Shape, order: Order) -> None:
    """All PodGroups, and then all pods."""
    groups = [_pod_group(name, shape.members) for name in order.of(shape.names)]
    driver.create_all(POD_GROUPS.format(driver.namespace), groups)
    for gang, member in order.of(_members(shape)):
        driver.create_pod(gang, grouped_pod(gang, member))


def start_stock(driver: Driver, shape: Shape, order: Order) -> None:
    """Pods and nothing else."""
    for gang, member in order.of(_members(shape)):
        driver.create_pod(gang, pod_body(gang, member, DEFAULT_SCHEDULER))


OURS = Contender("ours", GANGS, start_ours)
NATIVE = Contender("native", POD_GROUPS, start_native)
STOCK = Contender("stock", "", start_stock)


def check_native(plane: Plane) -> None:
    """Whether the server knows groups of pods: one that does not would drop the field without a word."""
    body = grouped_pod("gang", "worker-0")
    answer = plane.api.request("POST", PODS.format("default"), body, query={"dryRun": "All"})
    if "schedulingGroup" not in answer["spec"]:
        raise RuntimeError("the server has dropped the pods' group: its feature gates are off")


def one_round(contender: Contender, plane: Plane, shape: Shape) -> Round:
    """In a namespace of its own, which is empty again when the next one begins."""
    name = new_namespace(plane)
    with Driver(plane.api, name) as driver:
        contender.start(driver, shape, Order())
        found = driver.round(shape.pods)
    clean(contender, plane, name)
    progress(f"{contender.plane}: {found.total:.2f} s, median latency {found.latency:.3f} s")
    return found


def new_namespace(plane: Plane) -> str:
    name = f"bench-gang-{next(_numbers)}"
    plane.create_namespace(name)
    return name


def clean(contender: Contender, plane: Plane, namespace: str) -> None:
    """Until nothing of it is left, and nothing is written any more. PodGroups go when their last pod has gone."""
    paths = [path.format(namespace) for path in (contender.groups, PODS) if path]
    for path in paths:
        delete_all(plane.api, path)
    for path in paths:
        wait(lambda path=path: not plane.api.list(path), f"{path} are not deleted")  # type: ignore[misc]
    rest(plane.api)


def remove(contender: Contender, driver: Driver, gang: str) -> None:
    """One gang and its pods."""
    driver.api.delete(f"{contender.groups.format(driver.namespace)}/{gang}")
    delete_all(driver.api, PODS.format(driver.namespace), f"gang={gang}")


def gang_body(name: str, count: int) -> Object:
    members = [{"name": "worker", "count": count, "resources": {"cpu": "1"}}]
    return {
        "apiVersion": f"{PREFIX}/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": name},
        "spec": {"members": members},
    }


def grouped_pod(gang: str, member: str) -> Object:
    return pod_body(gang, member, DEFAULT_SCHEDULER, schedulingGroup={"podGroupName": gang})


def gang_labels(gang: str, member: str, attempt: str) -> dict[str, str]:
    return {f"{PREFIX}/gang": gang, f"{PREFIX}/member": member, f"{PREFIX}/attempt": attempt}


def pod_body(gang: str, member: str, scheduler: str, labels: Mapping[str, str] | None = None, **spec: Any) -> Object:
    container = {"name": "main", "image": "localhost/none", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{gang}-{member}", "labels": {"gang": gang, **(labels or {})}},
        "spec": {"schedulerName": scheduler, "containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def _member(gang: str, member: str, attempt: str) -> Object:
    return pod_body(gang, member, NAME, gang_labels(gang, member, attempt))


def _members(shape: Shape) -> list[tuple[str, str]]:
    """Gang by gang."""
    return [(gang, f"worker-{index}") for gang in shape.names for index in range(shape.members)]


def _pod_group(name: str, count: int) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
    }
