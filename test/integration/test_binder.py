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


def test_a_pod_is_bound_once_and_what_is_bound_or_deleted_already_is_recognized(
    binder: Binder, api: Api, namespace: str, node: str
) -> None:
    uid, other = create(api, namespace, "p"), "00000000-0000-0000-0000-000000000000"
    wanted = BindRequest(namespace, "p", uid, node)
    assert bind(binder, BindRequest(namespace, "p", other, node)) == {"p": POD_DELETED}, "a new pod has its name"
    assert node_of(api, namespace, "p") == ""
    assert bind(binder, wanted) == bind(binder, wanted) == {"p": ""}
    assert bind(binder, BindRequest(namespace, "p", uid, "elsewhere")) == {"p": "the pod is bound to another node"}
    assert node_of(api, namespace, "p") == node
    assert bind(binder, BindRequest(namespace, "none", other, node)) == {"none": POD_DELETED}


@pytest.mark.parametrize("binder", [SHORT_SECONDS], indirect=True)
def test_a_pod_that_may_not_be_scheduled_yet_is_tried_until_the_deadline(
    binder: Binder, api: Api, namespace: str, node: str
) -> None:
    uid = create(api, namespace, "p", schedulingGates=[{"name": "example.com/wait"}])
    error = bind(binder, BindRequest(namespace, "p", uid, node))["p"]
    assert error.startswith("the Binding did not succeed in time:")
    assert "schedulingGates" in error
