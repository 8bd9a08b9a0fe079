"""What the gang scheduler keeps of a pod."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tfjob_controller.api.common.cluster import ScheduledPod, ScheduledPodSpec
from tfjob_controller.api.common.podrequests import requests_of
from tfjob_controller.api.common.scheduledpods import MAX_GATES, MAX_RESOURCES, SCHEDULED_PODS
from tfjob_controller.api.gang import MAX_EXPRESSIONS, MAX_TERMS, PLACEMENT_GATE, REQUIRED_NODE_AFFINITY

MEMBER = {"scheduling.kubeflow.org/gang": "train"}
GATE = {"name": PLACEMENT_GATE}


def decoded(spec: dict[str, Any], labels: dict[str, str] | None = None) -> ScheduledPod:
    body = {"metadata": {"name": "p", "namespace": "team", "labels": labels or {}}, "spec": spec}
    return SCHEDULED_PODS.decode(msgspec.json.encode(body))


def required(terms: int, expressions: int = 1) -> dict[str, Any]:
    each = {"key": "a", "operator": "Exists"}
    return {"nodeSelectorTerms": [{"matchExpressions": [each] * expressions}] * terms}


def gated(affinity: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"schedulingGates": [GATE], "affinity": {"nodeAffinity": {REQUIRED_NODE_AFFINITY: affinity}}, **more}


def test_an_ordinary_pod_keeps_its_node_and_its_requests() -> None:
    spec = {
        "nodeName": "n1",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "1"}}}],
        "tolerations": [{"key": "a"}],
        "nodeSelector": {"a": "b"},
        "schedulingGates": [{"name": "another"}],
        "affinity": {"nodeAffinity": {REQUIRED_NODE_AFFINITY: required(1)}},
    }
    pod = decoded(spec, {"app": "web", **MEMBER})
    assert pod.spec == ScheduledPodSpec("n1")
    assert pod.metadata.labels == MEMBER
    assert requests_of(pod) == {"cpu": 2000, "nvidia.com/gpu": 1, "pods": 1}


def test_a_pod_with_an_invalid_quantity_has_no_requests() -> None:
    pod = decoded({"containers": [{"name": "c", "resources": {"requests": {"cpu": "many"}}}]})
    with pytest.raises(ValueError, match="quantity"):
        requests_of(pod)


def test_a_member_to_be_pinned_keeps_its_gates_and_its_affinity() -> None:
    pod = decoded(gated(required(2)), MEMBER)
    assert [gate.name for gate in pod.spec.scheduling_gates] == [PLACEMENT_GATE]
    assert pod.spec.required_affinity == required(2)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(gated(required(MAX_TERMS + 1)), id="terms"),
        pytest.param(gated(required(1, MAX_EXPRESSIONS + 1)), id="expressions"),
        pytest.param(gated({"nodeSelectorTerms": [{"x": "y" * 70_000}]}), id="bytes"),
        pytest.param(gated(required(1), schedulingGates=[GATE] * (MAX_GATES + 1)), id="gates"),
    ],
)
def test_a_member_beyond_the_bounds_stays_gated_and_counts_by_its_requests(spec: dict[str, Any]) -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]
    pod = decoded({**spec, "nodeName": "n", "containers": containers}, MEMBER)
    assert pod.spec == ScheduledPodSpec("n")
    assert requests_of(pod)["cpu"] == 3000


def test_of_too_many_resources_those_of_every_node_count_first() -> None:
    more = {f"a.io/r{number:03}": "1" for number in range(200)}
    requests = {**more, "cpu": "1", "memory": "1Ki"}
    pod = decoded({"containers": [{"name": "c", "resources": {"requests": requests}}]})
    amounts = requests_of(pod)
    assert len(amounts) == MAX_RESOURCES
    assert (amounts["cpu"], amounts["memory"], amounts["pods"], amounts["a.io/r000"]) == (1000, 1024, 1, 1)
