"""The binder against a real API server: the responses to Bindings, and the pods afterwards."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest

from localcluster.api import Api
from tfjob_controller.gangscheduler.binding.binder import Binder
from tfjob_controller.gangscheduler.bindrequests import POD_DELETED, BindRequest
from tfjob_controller.kube.http.transport import Transport
from tfjob_controller.util.clock import RealClock

pytestmark = pytest.mark.cluster

# So that no scheduler takes the pods first.
NOBODY = "nobody"


# Of a Binding: as long as no machine needs; and one that is over soon, for what cannot succeed.
LONG_SECONDS, SHORT_SECONDS = 60.0, 2.0


@pytest.fixture
def binder(requester: Transport, request: pytest.FixtureRequest) -> Iterator[Binder]:
    binder = Binder(requester, RealClock(), deadline_seconds=getattr(request, "param", LONG_SECONDS))
    binder.start()
    yield binder
    assert binder.stop()


@pytest.fixture
def node(api: Api, namespace: str) -> Iterator[str]:
    """One of the test's own, on which no other pod wants to be."""
    name = f"node-{namespace}"
    taint = {"key": "test", "value": namespace, "effect": "NoSchedule"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": [taint]}}
    api.create("/api/v1/nodes", body)
    yield name
    api.delete(f"/api/v1/nodes/{name}")


def create(api: Api, namespace: str, name: str, **spec: Any) -> str:
    """Its uid."""
    containers = [{"name": "c", "image": "none"}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": NOBODY, "containers": containers, "tolerations": [{"operator": "Exists"}], **spec},
    }
    return str(api.create(f"/api/v1/namespaces/{namespace}/pods", pod)["metadata"]["uid"])


def node_of(api: Api, namespace: str, name: str) -> str:
    return str(api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["spec"].get("nodeName", ""))


def bind(binder: Binder, *pods: BindRequest) -> dict[str, str]:
    """The error of each, by name."""
    results: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    binder.submit(pods, lambda pod, error: results.put((pod.name, error)))
    return dict(results.get(timeout=2 * LONG_SECONDS) for _ in pods)


def test_a_gang_is_bound(binder: Binder, api: Api, namespace: str, node: str) -> None:
    names = [f"worker-{number}" for number in range(20)]
    pods = [BindRequest(namespace, name, create(api, namespace, name), node) for name in names]
    assert bind(binder, *pods) == dict.fromkeys(names, "")
    assert {node_of(api, namespace, name) for name in names} == {node}


def test_a_second_binding_to_the_same_node_is_as_good_as_the_first(
    binder: Binder, api: Api, namespace: str, node: str
) -> None:
    pod = BindRequest(namespace, "p", create(api, namespace, "p"), node)
    assert bind(binder, pod) == {"p": ""}
    assert bind(binder, pod) == {"p": ""}


def test_a_second_binding_to_another_node_is_not(binder: Binder, api: Api, namespace: str, node: str) -> None:
    uid = create(api, namespace, "p")
    bind(binder, BindRequest(namespace, "p", uid, node))
    assert bind(binder, BindRequest(namespace, "p", uid, "elsewhere")) == {"p": "the pod is bound to another node"}
    assert node_of(api, namespace, "p") == node


def test_a_new_pod_of_the_same_name_is_left_alone(binder: Binder, api: Api, namespace: str, node: str) -> None:
    create(api, namespace, "p")
    assert bind(binder, BindRequest(namespace, "p", "00000000-0000-0000-0000-000000000000", node)) == {"p": POD_DELETED}
    assert node_of(api, namespace, "p") == ""


def test_a_pod_that_does_not_exist_is_gone(binder: Binder, namespace: str, node: str) -> None:
    assert bind(binder, BindRequest(namespace, "none", "00000000-0000-0000-0000-000000000000", node)) == {
        "none": POD_DELETED
    }


@pytest.mark.parametrize("binder", [SHORT_SECONDS], indirect=True)
def test_a_pod_that_may_not_be_scheduled_yet_is_tried_until_the_deadline(
    binder: Binder, api: Api, namespace: str, node: str
) -> None:
    uid = create(api, namespace, "p", schedulingGates=[{"name": "example.com/wait"}])
    error = bind(binder, BindRequest(namespace, "p", uid, node))["p"]
    assert error.startswith("the Binding did not succeed in time:")
    assert "schedulingGates" in error
