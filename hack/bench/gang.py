"""`make bench-gang`: how fast gangs start, compared with kube-scheduler's own (alpha) gangs.

Gangs of bare pods of one CPU on nodes of 8 CPUs, where all fit, created by the same threads and observed by the same
watch. The rounds of both contenders alternate, each on its own control plane, since native gangs need feature gates; a
cluster that KUBECONFIG names is not used.

- `gangs_bound_100x10`, `gangs_bound_20x50`, `gangs_bound_1x1000` (on 200 nodes), `gangs_bound_1x1000_on_1000`: seconds
  from the first create of anything to the last pod bound.
- `gangs_bound_mean`: the geometric mean over these shapes.
- `gang_latency_…`, for shapes with several gangs: median over gangs of the time from the first create of one of its
  pods until all are bound.
- `gang_spread_p95_…`: P95 over gangs of the time from its first pod bound to its last.
- `gangs_cpu_…`: CPU seconds of all programs, without those that create, until the last pod is bound. It is more
  reliable than wall time on a shared machine. Reported.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.gangdriver import Driver, Round
from bench.gangplane import Plane, native_plane, our_plane
from bench.jobs import PODS
from bench.report import ROUNDS, Reach, progress, report, size
from localcluster.gangscheduler import NAME

PREFIX = "scheduling.kubeflow.org"
GANGS = f"/apis/{PREFIX}/v1alpha1/namespaces/{{}}/gangs"
POD_GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/{}/podgroups"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """The number of gangs and of pods in each, with one CPU for each pod, and of nodes."""

    gangs: int
    members: int
    nodes: int

    @property
    def names(self) -> list[str]:
        return [f"gang-{number:03d}" for number in range(self.gangs)]


SHAPES = {
    "100x10": Shape(size(100, tiny=3), size(10, tiny=2), size(200, tiny=3)),
    "20x50": Shape(size(20, tiny=2), size(50, tiny=3), size(200, tiny=3)),
    "1x1000": Shape(1, size(1000, tiny=4), size(200, tiny=3)),
    "1x1000_on_1000": Shape(1, size(1000, tiny=4), size(1000, tiny=5)),
}


def our_round(plane: Plane, shape: Shape) -> Round:
    """Creates the Gangs, and the pods of each as soon as it is admitted."""
    created: set[str] = set()

    def create_pods(gang: Object) -> None:
        name, status = gang["metadata"]["name"], gang.get("status") or {}
        if status.get("phase") == "Admitted" and name not in created:
            created.add(name)
            for member in [member for place in status["placement"] for member in place["members"]]:
                labels = {"gang": name, "member": member, "attempt": str(status["attempt"])}
                driver.create_pod(name, _pod(name, member, labels, schedulerName=NAME))

    members = [{"name": "worker", "count": shape.members, "resources": {"cpu": "1"}}]
    gang = {"apiVersion": f"{PREFIX}/v1alpha1", "kind": "Gang", "spec": {"members": members}}
    with plane.namespace(GANGS, PODS) as namespace, Driver(plane, namespace) as driver:
        path = GANGS.format(namespace)
        driver.follow(path, create_pods)
        driver.create_all(path, [{**gang, "metadata": {"name": name}} for name in shape.names])
        return driver.round(shape.gangs * shape.members)


def native_round(plane: Plane, shape: Shape) -> Round:
    """Creates all PodGroups, and then all pods. PodGroups are deleted after their last pod."""
    spec = {"schedulingPolicy": {"gang": {"minCount": shape.members}}}
    group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "spec": spec}
    with plane.namespace(POD_GROUPS, PODS) as namespace, Driver(plane, namespace) as driver:
        driver.create_all(POD_GROUPS.format(namespace), [{**group, "metadata": {"name": name}} for name in shape.names])
        for gang in shape.names:
            for index in range(shape.members):
                driver.create_pod(gang, _grouped_pod(gang, f"worker-{index}"))
        return driver.round(shape.gangs * shape.members)


def check_native(plane: Plane) -> None:
    """Raises RuntimeError if the server does not support groups of pods: it would drop the field silently."""
    body = _grouped_pod("gang", "worker-0")
    answer = plane.api.request("POST", PODS.format("default"), body, query={"dryRun": "All"})
    if "schedulingGroup" not in answer["spec"]:
        raise RuntimeError("the server dropped the pods' group: its feature gates are off")


def _grouped_pod(gang: str, member: str) -> Object:
    return _pod(gang, member, {}, schedulingGroup={"podGroupName": gang})


def _pod(gang: str, member: str, labels: Mapping[str, str], **spec: Any) -> Object:
    container = {"name": "main", "image": "localhost/none", "resources": {"requests": {"cpu": "1"}}}
    ours = {f"{PREFIX}/{name}": value for name, value in labels.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{gang}-{member}", "labels": {"gang": gang, **ours}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def measure(ours: Plane, native: Plane, name: str) -> tuple[list[Round], list[Round]]:
    """Runs the rounds of both contenders in turn."""
    shape = SHAPES[name]
    for plane in (ours, native):
        plane.set_nodes(shape.nodes)
    rounds: tuple[list[Round], list[Round]] = [], []
    for number in range(1, ROUNDS + 1):
        rounds[1].append(native_round(native, shape))
        rounds[0].append(our_round(ours, shape))
        latest = ", native ".join(f"{of_one[-1].total:.2f} s, {of_one[-1].cpu_seconds:.2f} s CPU" for of_one in rounds)
        progress(f"{name}, round {number} of {ROUNDS}: {latest}")
    return rounds


def report_shape(name: str, ours: Sequence[Round], native: Sequence[Round]) -> bool:
    """Prints the figures of a shape. Returns False if one missed its target."""
    shape = SHAPES[name]

    def report_figure(figure: str, attribute: str, reach: Reach | None, **more: Any) -> bool:
        values, baselines = ([getattr(of_one, attribute) for of_one in rounds] for rounds in (ours, native))
        sizes = {"gangs": shape.gangs, "members": shape.members, "nodes": shape.nodes}
        return report(f"{figure}_{name}", "s", values, baselines=baselines, reach=reach, **sizes, **more)

    ok = report_figure("gangs_bound", "total", Reach(max_ratio=1 / 0.9))
    if shape.gangs > 1:
        ok &= report_figure("gang_latency", "latency", Reach(max_ratio=0.3))
        ok &= report_figure("gang_spread_p95", "spread_p95", Reach(max_ratio=1.0))
    by_program = {"ours": _by_program(ours), "native": _by_program(native)}
    return report_figure("gangs_cpu", "cpu_seconds", None, by_program=by_program) and ok


def _by_program(rounds: Sequence[Round]) -> Mapping[str, float]:
    """Returns the median CPU of each program."""
    return {name: round(statistics.median(of_one.cpu[name] for of_one in rounds), 2) for name in rounds[0].cpu}


def means(rounds: Sequence[Sequence[Round]]) -> list[float]:
    """Returns, for each n, the geometric mean of the seconds of the n-th rounds of all shapes."""
    return [statistics.geometric_mean(of_one.total for of_one in of_all) for of_all in zip(*rounds, strict=True)]


def main() -> int:
    """Prints all figures. Returns 1 if one missed its target."""
    ok, by_shape = True, []
    with our_plane() as ours, native_plane() as native:
        check_native(native)
        for name in SHAPES:
            rounds = measure(ours, native, name)
            by_shape.append(rounds)
            ok &= report_shape(name, *rounds)
    our_means, native_means = (means(of_one) for of_one in zip(*by_shape, strict=True))
    ok &= report("gangs_bound_mean", "s", our_means, baselines=native_means, reach=Reach(max_ratio=0.75))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
