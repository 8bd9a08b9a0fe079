"""Which gated pods are pinned and ungated, and how, with an API server in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from helpers.fakeclock import FakeClock
from helpers.memoryapi import MemoryApi, no_answer, refusal
from helpers.poll import eventually
from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.common.scheduledpods import SCHEDULED_PODS
from tfjob_controller.api.gang import GANGS, Gang
from tfjob_controller.gangscheduler.binding.ungater import (
    RETRY_BASE_SECONDS,
    GatedPodHandler,
    PlacedGangHandler,
    Ungater,
)
from tfjob_controller.gangscheduler.state.informers import BY_GANG, by_gang
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient

NAMESPACE = "team"
KEY = f"{NAMESPACE}/p-17"
PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
GATE = "scheduling.kubeflow.org/placement"
LABELS = {
    "scheduling.kubeflow.org/gang": "one",
    "scheduling.kubeflow.org/attempt": "2",
    "scheduling.kubeflow.org/member-kind": "node",
    "batch.kubernetes.io/job-completion-index": "17",
}
HERE = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

Object = dict[str, Any]


class World:
    """The API server, the caches, and an ungater whose threads are not started."""

    def __init__(self) -> None:
        self.api = MemoryApi()
        self.clock = FakeClock()
        self.gangs: Store[Gang] = Store()
        self.pods: Store[ScheduledPod] = Store({BY_GANG: by_gang})
        self.ungater = self.new_ungater()
        self._version = 0

    def new_ungater(self) -> Ungater:
        client = ResourceClient(self.api, SCHEDULED_PODS, retry=False)
        return Ungater(self.gangs, self.pods, client, self.clock, threads=2)

    def put_gang(
        self, phase: str = "Admitted", node: str = "n1", *, spec: Object | None = None, attempt: int = 2
    ) -> None:
        self._version += 1
        body = {
            "metadata": {"name": "one", "namespace": NAMESPACE, "resourceVersion": str(self._version)},
            "spec": spec or {},
            "status": {"phase": phase, "attempt": attempt, "placement": [{"node": node, "members": ["node-17"]}]},
        }
        self.gangs.upsert(GANGS.decode(msgspec.json.encode(body)))

    def put_pod(
        self,
        name: str = "p-17",
        *,
        labels: Mapping[str, str] = LABELS,
        gates: Sequence[str] = (GATE,),
        metadata: Object | None = None,
        **spec: Any,
    ) -> None:
        meta = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "labels": labels, **(metadata or {})}
        body = {"metadata": meta, "spec": {"schedulingGates": [{"name": gate} for gate in gates], **spec}}
        self.api.request("POST", PATH, body=msgspec.json.encode(body))
        self.see_pod(name)

    def see_pod(self, name: str = "p-17") -> None:
        """The watch."""
        self.pods.upsert(self.cached(name))

    def cached(self, name: str = "p-17") -> ScheduledPod:
        return SCHEDULED_PODS.decode(msgspec.json.encode(self.api.objects[f"{PATH}/{name}"]))

    def change_pod(self, patch: Object) -> None:
        """Somebody else does, and no watch shows it yet."""
        self.api.request(
            "PATCH", f"{PATH}/p-17", body=msgspec.json.encode(patch), content_type="application/merge-patch+json"
        )

    def spec(self, name: str = "p-17") -> Object:
        spec: Object = self.api.objects[f"{PATH}/{name}"]["spec"]
        return spec

    def is_gated(self, name: str = "p-17") -> bool:
        return {"name": GATE} in self.spec(name)["schedulingGates"]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    assert world.ungater.stop(10)


def test_a_gated_member_is_pinned_to_its_node_and_ungated_in_one_request(world: World) -> None:
    world.put_gang()
    world.put_pod()
    assert world.ungater.ungate(KEY) is None
    assert world.spec() == {
        "schedulingGates": [],
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [HERE]}]}}},
    }
    assert len(world.api.written("PATCH")) == 1
    assert world.ungater.ungate(KEY) is None
    assert len(world.api.written("PATCH")) == 1


def test_gates_of_others_and_the_rest_of_the_affinity_stay(world: World) -> None:
    zone, rack = ({"key": key, "operator": "Exists"} for key in ("zone", "rack"))
    preferred = [{"weight": 1, "preference": {"matchExpressions": [rack]}}]
    terms = [{"matchExpressions": [zone]}, {"matchFields": [HERE], "matchExpressions": [rack]}, {}]
    affinity = {
        "podAffinity": {"x": 1},
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            REQUIRED: {"nodeSelectorTerms": terms},
        },
    }
    world.put_gang()
    world.put_pod(gates=["example.com/quota", GATE], affinity=affinity)
    world.ungater.ungate(KEY)
    pinned = [
        {"matchExpressions": [zone], "matchFields": [HERE]},
        {"matchExpressions": [rack], "matchFields": [HERE, HERE]},
        {},
    ]
    assert world.spec() == {
        "schedulingGates": [{"name": "example.com/quota"}],
        "affinity": {
            "podAffinity": {"x": 1},
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": preferred,
                REQUIRED: {"nodeSelectorTerms": pinned},
            },
        },
    }


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({"scheduling.kubeflow.org/attempt": "02"}, id="no attempt"),
        pytest.param({"scheduling.kubeflow.org/gang": "two"}, id="a Gang that does not exist"),
        pytest.param({"scheduling.kubeflow.org/gang": ""}, id="no gang"),
    ],
)
def test_a_pod_that_is_no_member_of_the_present_attempt_stays_gated(world: World, labels: dict[str, str]) -> None:
    world.put_gang()
    world.put_pod(labels=LABELS | labels)
    world.ungater.ungate(KEY)
    assert world.api.written("PATCH") == []


def test_pods_that_are_not_gated_or_are_being_deleted_are_not_changed(world: World) -> None:
    world.put_gang()
    world.put_pod("other", gates=["example.com/quota"])
    world.put_pod("ending", metadata={"deletionTimestamp": "2026-11-21T12:00:30Z"})
    for name in ("other", "ending", "none"):
        assert world.ungater.ungate(f"{NAMESPACE}/{name}") is None
    assert world.api.written("PATCH") == []


def test_a_pod_that_has_changed_since_it_was_seen_is_not_overwritten(world: World) -> None:
    world.put_gang()
    world.put_pod()
    world.change_pod({"metadata": {"labels": {"scheduling.kubeflow.org/attempt": "1"}}})
    error = world.ungater.ungate(KEY)
    assert error is not None
    assert error.is_conflict
    assert world.is_gated()
    world.see_pod()
    assert world.ungater.ungate(KEY) is None
    assert world.is_gated()


def test_a_pod_that_no_longer_exists_is_not_tried_again(world: World) -> None:
    world.put_gang()
    world.put_pod()
    world.api.objects.clear()
    assert world.ungater.ungate(KEY) is None


@pytest.mark.parametrize("is_gang_first", [True, False])
def test_pods_are_ungated_whichever_comes_first(world: World, is_gang_first: bool) -> None:
    of_pods, of_gangs = GatedPodHandler(world.ungater), PlacedGangHandler(world.ungater)
    world.ungater.start()

    def gang_is_admitted() -> None:
        world.put_gang()
        of_gangs.on_update(*world.gangs.list() * 2)

    if is_gang_first:
        gang_is_admitted()
    for index in range(20):
        world.put_pod(f"p-{index}")
        of_pods.on_add(world.cached(f"p-{index}"), False)
    if not is_gang_first:
        assert world.is_gated()
        gang_is_admitted()
    eventually(lambda: not any(world.is_gated(f"p-{index}") for index in range(20)))


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(refusal(409, "Conflict"), id="conflict"),
        pytest.param(no_answer(applied=False), id="no answer"),
    ],
)
def test_a_patch_that_failed_is_repeated_with_a_growing_delay(world: World, fault: Any) -> None:
    world.put_gang()
    world.put_pod()
    world.api.script.extend([fault, fault])
    world.ungater.start()
    world.ungater.on_pod(world.cached())
    for seconds, requests in ((RETRY_BASE_SECONDS, 1), (2 * RETRY_BASE_SECONDS, 2)):
        eventually(lambda: world.ungater.statistics().delayed == 1)
        world.clock.advance(seconds / 2)
        assert world.ungater.statistics().delayed == 1
        assert len(world.api.written("PATCH")) == requests
        world.clock.advance(seconds / 2)
        eventually(lambda sent=requests: len(world.api.written("PATCH")) == sent + 1)
    eventually(lambda: not world.is_gated())


def test_a_new_process_finds_all_that_is_left(world: World) -> None:
    world.put_gang()
    world.put_pod()
    after = world.new_ungater()
    after.start()
    GatedPodHandler(after).on_add(world.cached(), True)
    eventually(lambda: not world.is_gated())
    assert after.stop(10)


def test_after_its_end_nothing_is_patched(world: World) -> None:
    world.put_gang()
    world.put_pod()
    world.ungater.start()
    assert world.ungater.stop(10)
    world.ungater.on_pod(world.cached())
    assert world.is_gated()
