"""The fakes of tests show only what real kubelets and Job controllers have shown: each is held to the recordings."""

from __future__ import annotations

import queue
import random
from collections.abc import Callable, Iterator
from typing import Any, Self

import msgspec
import pytest

from helpers.clusterinmemory import World, world
from helpers.laggingcluster import LaggingCluster
from helpers.manifests import master
from helpers.shownlives import Shown
from helpers.trainworld import ends, train_world
from localcluster.fakekubelet import DEFAULT_NODES, FakeKubelet
from localcluster.podstatus import Outcome
from tfjob_controller.api.common.core import Pod

Object = dict[str, Any]
Step = tuple[Any, ...]

NEVER, ON_FAILURE = {"restartPolicy": "Never"}, {"restartPolicy": "OnFailure"}
SETUP = {"initContainers": [{"name": "setup", "image": "i"}]}
NATIVE = {"initContainers": [{"name": "log", "image": "i", "restartPolicy": "Always"}]}
MAIN = {"name": "tensorflow", "image": "i"}
SIDECAR = {"containers": [MAIN, {"name": "log", "image": "i"}]}


class OnePod:
    """The API of a pod that runs on a node, as far as a fake kubelet uses it. It is deleted while it `stays`."""

    def __init__(self, **spec: Any) -> None:
        meta = {"name": "pod", "namespace": "ns", "uid": "uid", "creationTimestamp": "2026-01-01T00:00:00Z"}
        self.pod: Object = {"metadata": meta, "spec": {"nodeName": DEFAULT_NODES[0], "containers": [MAIN], **spec}}
        self.shown = Shown()
        self.patched: queue.Queue[str] = queue.Queue()
        self._events: queue.Queue[tuple[str, Object] | None] = queue.Queue()
        self._events.put(("ADDED", self.pod))

    def create_if_missing(self, path: str, body: Object) -> bool:
        return True

    def patch(self, path: str, body: Object, content_type: str = "") -> None:
        if path.endswith("/pods/pod/status"):
            self.pod = {**self.pod, "status": {**self.pod.get("status", {}), **body["status"]}}
            self.shown.take(msgspec.convert(self.pod, Pod))
            self.patched.put(self.pod["status"]["phase"])

    def delete(self, path: str, **options: Any) -> None:
        self.patched.put("gone")

    def watch(self, path: str, query: Object) -> Self:
        return self

    def __iter__(self) -> Iterator[tuple[str, Object]]:
        return iter(self._events.get, None)

    def close(self) -> None:
        self._events.put(None)

    def is_deleted(self) -> None:
        times = {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 30}
        self.pod = {**self.pod, "metadata": {**self.pod["metadata"], **times}}
        self._events.put(("MODIFIED", self.pod))


def outcome(exit_code: int, **fields: Any) -> Outcome:
    return Outcome(0.0, exit_code, **fields)


@pytest.mark.parametrize(
    ("spec", "outcomes"),
    [
        pytest.param(NEVER, [outcome(0)], id="succeeds"),
        pytest.param(NEVER, [outcome(1)], id="fails"),
        pytest.param(NEVER, [outcome(137)], id="is killed"),
        pytest.param(ON_FAILURE, [outcome(137), outcome(137), outcome(0)], id="restarted in place"),
        pytest.param(NEVER, [outcome(137, pod_reason="Evicted")], id="evicted"),
        pytest.param({**NEVER, **SETUP}, [outcome(0)], id="succeeds after an init container"),
        pytest.param({**NEVER, **SETUP}, [outcome(1, container="setup")], id="init container fails"),
        pytest.param({**ON_FAILURE, **SETUP}, [outcome(137, container="setup"), outcome(0)], id="init container again"),
        pytest.param({**NEVER, **NATIVE}, [outcome(0)], id="native sidecar"),
        pytest.param({**NEVER, **SIDECAR}, [outcome(0)], id="sidecar succeeds"),
        pytest.param({**NEVER, **SIDECAR}, [outcome(1, container="log")], id="sidecar fails"),
    ],
)
def test_a_fake_kubelet_shows_a_recorded_life(spec: Object, outcomes: list[Outcome]) -> None:
    api = OnePod(**spec)
    with FakeKubelet(api, behaviour=lambda _, attempt: outcomes[attempt]):  # type: ignore[arg-type]
        while api.patched.get(timeout=10) not in ("Succeeded", "Failed"):
            pass
    assert api.shown.unreal() == []


@pytest.mark.parametrize("spec", [NEVER, {**NEVER, **NATIVE}, {**NEVER, **SIDECAR}])
def test_a_fake_kubelet_ends_a_deleted_pod_as_a_real_one(spec: Object) -> None:
    api = OnePod(**spec)
    with FakeKubelet(api, behaviour=lambda *_: Outcome()):  # type: ignore[arg-type]
        assert api.patched.get(timeout=10) == "Running"
        api.is_deleted()
        while api.patched.get(timeout=10) != "gone":
            pass
    assert api.shown.unreal() == []


def with_sync(*steps: Callable[[World], object]) -> tuple[Callable[[World], object], ...]:
    return World.settle, *(each for step in steps for each in (step, World.sync))


def runs(replica: str) -> Callable[[World], object]:
    return lambda cluster: cluster.runs(replica)


def fails_in_place(count: int) -> tuple[Callable[[World], object], ...]:
    return exits(CHIEF, 137, "Running"), lambda cluster: cluster.runs(CHIEF, restart_count=count)


def exits(replica: str, code: int, phase: str = "") -> Callable[[World], object]:
    return lambda cluster: cluster.exits(replica, code, phase=phase)


def is_deleted(replica: str) -> Callable[[World], object]:
    return lambda cluster: cluster.pod_deleted(replica)


def is_suspended(cluster: World) -> None:
    cluster.stops_slowly = True
    cluster.change(suspend=True)


def ends_as_node(code: int) -> Callable[[World], object]:
    return lambda cluster: ends(cluster, "node-0", "node-1", exit_code=code)


CHIEF, NODES = "master-0", World.all_run


@pytest.mark.parametrize(
    ("cluster", "steps"),
    [
        *(([master()], [runs(CHIEF), exits(CHIEF, code)]) for code in (0, 1, 137)),
        *(([master()], [runs(CHIEF), is_deleted(CHIEF), exits(CHIEF, code)]) for code in (0, 143)),
        *(([master()], [runs(CHIEF), is_suspended, exits(CHIEF, code)]) for code in (0, 143)),
        ([master()], [runs(CHIEF), *fails_in_place(1), *fails_in_place(2), exits(CHIEF, 0)]),
        ([master()], [runs(CHIEF), exits(CHIEF, 0, "Running"), World.pods_catch_up]),
        *(([], [NODES, ends_as_node(code)]) for code in (0, 1, 137)),
        ([], [NODES, is_suspended]),
        ([], [NODES, is_deleted("node-1"), exits("node-1", 143)]),
    ],
)
def test_a_cluster_in_memory_shows_recorded_lives(
    cluster: list[Object], steps: list[Callable[[World], object]]
) -> None:
    there = world(*cluster) if cluster else train_world()
    shown = Shown()
    for step in with_sync(*steps):
        step(there)
        shown.take(*there.jobs.values(), *(pod for pods in there.pods.values() for pod in pods))
    assert shown.unreal() == []


def test_a_lagging_cluster_shows_recorded_lives() -> None:
    rng, nodes = random.Random(0), ("node-0", "node-1")
    steps: list[Step] = [("sync",), ("jobs_seen",), ("pods_seen",), ("advance",)]
    steps += [(name, node) for name in ("job_controller", "kubelet") for node in nodes]
    rare: list[Step] = [("suspend", True), ("suspend", False), *(("is_killed", node) for node in nodes)]
    for stops_with in (143, 0) * 10:
        cluster, shown = LaggingCluster(train_world(), stops_with), Shown()
        for _ in range(80):
            name, *arguments = rng.choice(rare if rng.random() < 0.1 else steps)
            getattr(cluster, name)(*arguments)
            shown.take(*cluster.truth.jobs.values(), *(pod for pods in cluster.truth.pods.values() for pod in pods))
        assert shown.unreal() == []
