"""The overlay `ha` with real controllers and kube-scheduler: the nodes of its pods, and the effects of a drain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.poll import eventually
from helpers.renderings import SYSTEM
from localcluster.api import Api, RefusedError
from localcluster.fakekubelet import FakeKubelet

pytestmark = pytest.mark.cluster

PODS = f"/api/v1/namespaces/{SYSTEM}/pods"
BUDGETS = f"/apis/policy/v1/namespaces/{SYSTEM}/poddisruptionbudgets"
ZONES = {"a1": "a", "a2": "a", "b1": "b"}
REPLICAS = {"tfjob-controller": 3, "gang-scheduler": 2}

Object = dict[str, Any]


@pytest.fixture
def installed(own_control_plane: Cluster, tmp_path: Path) -> Iterator[Kubectl]:
    """The overlay on three nodes in two zones, with all its pods running."""
    api = own_control_plane.api
    kubectl = Kubectl(own_control_plane.kubeconfig, tmp_path, SYSTEM)
    with FakeKubelet(Api.from_kubeconfig(own_control_plane.kubeconfig), namespace=SYSTEM, nodes=tuple(ZONES)):
        for node, zone in ZONES.items():
            labels = {"topology.kubernetes.io/zone": zone}
            api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})
        kubectl.must("apply", "-k", str(MANIFESTS / "overlays" / "ha"))
        await_all(api)
        yield kubectl


def running(api: Api, app: str) -> list[Object]:
    """Its pods that run and stay."""
    pods = api.list(PODS, f"app={app}")
    return [
        each
        for each in pods
        if each.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]
    ]


def await_all(api: Api) -> None:
    """All pods run, and each budget has seen it."""

    def is_whole(app: str) -> bool:
        budget = api.get(f"{BUDGETS}/{app}").get("status", {})
        return len(running(api, app)) == REPLICAS[app] and budget.get("disruptionsAllowed") == 1

    eventually(lambda: all(is_whole(app) for app in REPLICAS))


def nodes_of(api: Api, app: str) -> Counter[str]:
    return Counter(each["spec"]["nodeName"] for each in running(api, app))


def evict(api: Api, pod: Object) -> int:
    """The answer's status."""
    name = pod["metadata"]["name"]
    try:
        api.create(
            f"{PODS}/{name}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        )
    except RefusedError as error:
        return error.status
    return 201


def test_replicas_are_spread_and_a_drain_takes_one_at_a_time(installed: Kubectl, own_control_plane: Cluster) -> None:
    api = own_control_plane.api
    assert nodes_of(api, "tfjob-controller") == {"a1": 1, "a2": 1, "b1": 1}
    assert {ZONES[node] for node in nodes_of(api, "gang-scheduler")} == {"a", "b"}
    assert {each["spec"]["priority"] for app in REPLICAS for each in running(api, app)} == {1_000_000_000}

    # A second eviction has to wait for the first one's replacement, which has nowhere to go for now.
    installed.must("cordon", *ZONES)
    for app in REPLICAS:
        first, second, *_ = running(api, app)
        assert (evict(api, first), evict(api, second)) == (201, 429)
    installed.must("uncordon", *ZONES)
    await_all(api)

    # A node that is drained counts no longer as one that is to be filled first.
    # (The taint is put there by the node lifecycle controller, which this control plane has not.)
    installed.must("taint", "node", "a2", "node.kubernetes.io/unschedulable:NoSchedule")
    installed.must("drain", "a2", "--timeout=300s")
    await_all(api)
    assert sorted(nodes_of(api, "tfjob-controller").values()) == [1, 2]
    assert nodes_of(api, "gang-scheduler") == {"a1": 1, "b1": 1}
