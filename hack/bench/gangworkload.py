"""Gangs of bare pods, as each of the contenders runs them.

`OURS`, `NATIVE` and `STOCK` are the contenders. Each starts a `Shape` in a namespace through a `Driver`,
which creates everything with the same 16 threads and observes bound pods with the same watch:

- ours: the Gangs, and the pods of each as soon as it is admitted;
- native: all PodGroups, then all pods;
- stock: all pods.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.gangdriver import PODS, Driver, Round
from bench.gangplane import Plane, cpu_seconds
from bench.report import progress
from bench.stage import create_namespace, in_parallel, rest, wait
from localcluster.gangscheduler import NAME

PREFIX = "scheduling.kubeflow.org"
GANGS = f"/apis/{PREFIX}/v1alpha1/namespaces/{{}}/gangs"
POD_GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/{}/podgroups"
DEFAULT_SCHEDULER = "default-scheduler"

Object = dict[str, Any]
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Shape:
    """The number of gangs and of pods in each, with one CPU for each pod."""

    gangs: int
    members: int

    @property
    def pods(self) -> int:
        return self.gangs * self.members

    @property
    def names(self) -> list[str]:
        return [f"gang-{number:03d}" for number in range(self.gangs)]


@dataclass(frozen=True, slots=True)
class Measured:
    """One round of one contender; `cpu` is CPU seconds by program until the last pod was bound."""

    round: Round
    cpu: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Contender:
    """`plane` is the kind of control plane that it needs; `groups` the path of its gang objects, if any."""

    plane: str
    groups: str
    start: Callable[[Driver, Shape], None]


def start_ours(driver: Driver, shape: Shape) -> None:
    """Creates the Gangs, and the pods of each as soon as it is admitted."""
    created: set[str] = set()

    def create_pods(gang: Object) -> None:
        name, status = gang["metadata"]["name"], gang.get("status") or {}
        if status.get("phase") == "Admitted" and name not in created:
            created.add(name)
            for member in [member for place in status["placement"] for member in place["members"]]:
                driver.create_pod(name, _member(name, member, str(status["attempt"])))

    path = GANGS.format(driver.namespace)
    driver.follow(path, create_pods)
    driver.create_all(path, [gang_body(name, shape.members) for name in shape.names])


def start_native(driver: Driver, shape: Shape) -> None:
    """Creates all PodGroups, and then all pods."""
    groups = [_pod_group(name, shape.members) for name in shape.names]
    driver.create_all(POD_GROUPS.format(driver.namespace), groups)
    for gang, member in _members(shape):
        driver.create_pod(gang, grouped_pod(gang, member))


def start_stock(driver: Driver, shape: Shape) -> None:
    """Creates all pods."""
    for gang, member in _members(shape):
        driver.create_pod(gang, pod_body(gang, member, DEFAULT_SCHEDULER))


OURS = Contender("ours", GANGS, start_ours)
NATIVE = Contender("native", POD_GROUPS, start_native)
STOCK = Contender("stock", "", start_stock)


def check_native(plane: Plane) -> None:
    """Raises RuntimeError if the server does not support groups of pods: it would drop the field silently."""
    body = grouped_pod("gang", "worker-0")
    answer = plane.api.request("POST", PODS.format("default"), body, query={"dryRun": "All"})
    if "schedulingGroup" not in answer["spec"]:
        raise RuntimeError("the server dropped the pods' group: its feature gates are off")


def one_round(contender: Contender, plane: Plane, shape: Shape, pids: Mapping[str, int]) -> Measured:
    """Runs a round in its own namespace, which is empty afterwards. `pids` are the processes whose CPU counts."""
    name = new_namespace(plane)
    with Driver(plane, name) as driver:
        before = cpu_seconds(pids)
        contender.start(driver, shape)
        result = driver.round(shape.pods)
        cpu = {program: seconds - before[program] for program, seconds in cpu_seconds(pids).items()}
    clean(contender, plane, name)
    progress(
        f"{contender.plane}: {result.total:.2f} s, median latency {result.latency:.3f} s, {sum(cpu.values()):.2f} s CPU"
    )
    return Measured(result, cpu)


def new_namespace(plane: Plane) -> str:
    name = f"bench-gang-{next(_numbers)}"
    create_namespace(plane.api, name)
    return name


def clean(contender: Contender, plane: Plane, namespace: str) -> None:
    """Deletes everything and waits until nothing more is written. PodGroups are deleted after their last pod."""
    paths = [path.format(namespace) for path in (contender.groups, PODS) if path]
    for path in paths:
        _delete_each(plane, path)
    for path in paths:
        wait(functools.partial(_is_empty, plane, path), f"{path} are not deleted")
    rest(plane.api)


def _delete_each(plane: Plane, path: str) -> None:
    """Deletes the objects concurrently. Deleting a collection is sequential and may exceed the timeout of a request."""
    names = [obj["metadata"]["name"] for obj in plane.api.list(path)]
    in_parallel(lambda name: plane.api.delete(f"{path}/{name}", gracePeriodSeconds=0), names)


def _is_empty(plane: Plane, path: str) -> bool:
    return not plane.api.list(path)


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
    """Returns all members, gang by gang."""
    return [(gang, f"worker-{index}") for gang in shape.names for index in range(shape.members)]


def _pod_group(name: str, count: int) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
    }
