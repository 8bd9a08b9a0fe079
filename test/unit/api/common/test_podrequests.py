"""What a pod requests, as kube-scheduler counts it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tfjob_controller.api.common.podrequests import amounts_of, member_of, requests_of, template_requests
from tfjob_controller.api.common.scheduledpods import SCHEDULED_PODS
from tfjob_controller.api.gang import Member


def of(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, int]:
    body = {"metadata": {"name": "p"}, "spec": spec, "status": status or {}}
    return requests_of(SCHEDULED_PODS.decode(msgspec.json.encode(body)))


def container(name: str = "a", always: bool = False, **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}} | ({"restartPolicy": "Always"} if always else {})


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        pytest.param({"containers": [container()]}, {}, id="nothing but its place"),
        pytest.param(
            {"containers": [container(cpu="1500m", memory="1Ki"), container("b", cpu="0.5")]},
            {"cpu": 2000, "memory": 1024},
            id="containers add up",
        ),
        pytest.param(
            {"containers": [container(memory="500m"), container("b", memory="500m")]},
            {"memory": 1},
            id="only the sum is rounded",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [container("i", cpu="3"), container("j", cpu="2")]},
            {"cpu": 3000},
            id="init containers run one after another",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [container("i", cpu="3", memory="1")]},
            {"cpu": 3000, "memory": 1},
            id="each resource has its own maximum",
        ),
        pytest.param(
            {
                "containers": [container(cpu="1")],
                "initContainers": [container("s", always=True, cpu="2"), container("i", cpu="3")],
            },
            {"cpu": 5000},
            id="a sidecar runs beside the init containers after it",
        ),
        pytest.param(
            {
                "containers": [container(cpu="4")],
                "initContainers": [container("i", cpu="3"), container("s", always=True, cpu="2")],
            },
            {"cpu": 6000},
            id="a sidecar runs beside the containers",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "overhead": {"cpu": "250m", "memory": "1Mi"}},
            {"cpu": 1250, "memory": 2**20},
            id="overhead comes on top",
        ),
        pytest.param(
            {"containers": [container(cpu="1", **{"x.com/y": "2"})], "resources": {"requests": {"cpu": "3"}}},
            {"cpu": 3000, "x.com/y": 2},
            id="pod-level requests replace the sum",
        ),
        pytest.param(
            {"containers": [container(**{"storage": "5", "x.com/y": "0"})]}, {}, id="zero and the unknown do not count"
        ),
    ],
)
def test_requests_of_a_pod(spec: dict[str, Any], requests: dict[str, int]) -> None:
    assert of(spec) == requests | {"pods": 1}


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        pytest.param({"resources": {"requests": {"cpu": "3"}}}, 3000, id="shrinking: what it still has"),
        pytest.param({"resources": {"requests": {"cpu": "500m"}}}, 1000, id="growing: what it asks for"),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2"}}, 2000, id="what was allocated"
        ),
        pytest.param({"allocatedResources": {"cpu": "2"}}, 1000, id="nothing was actuated yet"),
    ],
)
def test_a_pod_that_is_resized_takes_the_most_of_what_counts(status: dict[str, Any], cpu: int) -> None:
    found = of({"containers": [container(cpu="1")]}, {"containerStatuses": [{"name": "a", **status}]})
    assert found["cpu"] == cpu


def test_an_infeasible_resize_of_a_pod_does_not_count() -> None:
    status = {
        "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
        "containerStatuses": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}],
    }
    assert of({"containers": [container(cpu="9")]}, status)["cpu"] == 1000


def test_pod_level_requests_in_vain_leave_what_the_pod_was_given() -> None:
    status = {
        "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
        "resources": {"requests": {"memory": "1"}},
    }
    spec = {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "9", "memory": "5"}}}
    assert of(spec, status) == {"memory": 1, "pods": 1}


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        pytest.param({"containers": [{"name": "a"}]}, {}, id="nothing"),
        pytest.param(
            {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1, "cpu": 0.5}, "requests": {"cpu": "250m"}}}]},
            {"nvidia.com/gpu": "1", "cpu": "250m"},
            id="a limit without a request is a request, and numbers are quantities",
        ),
        pytest.param(
            {
                "containers": [{"resources": {"requests": {"cpu": "1"}}}],
                "resources": {"limits": {"cpu": "4", "memory": "1Gi"}},
            },
            {"cpu": "1", "memory": "1Gi"},
            id="a pod-level limit counts where no container requests",
        ),
        pytest.param(
            {"containers": None, "resources": None, "overhead": {"memory": "1Mi"}}, {"memory": "1Mi"}, id="nulls"
        ),
    ],
)
def test_requests_of_a_template(spec: dict[str, Any], requests: dict[str, str]) -> None:
    assert template_requests(spec) == requests


def test_a_member_has_all_that_decides_where_its_pods_run() -> None:
    required = {"nodeSelectorTerms": [{"matchFields": []}]}
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "1500m"}}}],
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "priorityClassName": "high",
    }
    assert member_of("worker", 3, spec) == Member(
        "worker", 3, {"cpu": "1500m"}, {"a": "b"}, ({"operator": "Exists"},), required, "high"
    )


def test_a_member_says_the_same_as_its_pods_will() -> None:
    spec = {"containers": [container(cpu="0.3", memory="1.5Gi")], "initContainers": [container("i", cpu="1")]}
    assert amounts_of(member_of("worker", 1, spec)) == of(spec)


@pytest.mark.parametrize("quantity", ["-1", "many", ""])
def test_a_member_with_an_invalid_request_is_an_error(quantity: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        amounts_of(Member("worker", 1, {"cpu": quantity}))
