"""No pod is evicted for a gang, whatever the priority of the gang's pods."""

from __future__ import annotations

import itertools

import pytest

from helpers.cluster import Cluster
from helpers.gangowner import GANGS, Owner, pod
from helpers.poll import eventually, never
from localcluster.api import Api
from localcluster.gangscheduler import NAME

pytestmark = pytest.mark.cluster

PODS = "/api/v1/namespaces/gangs/pods"


def test_a_pod_of_high_priority_whose_gang_waits_evicts_nobody(gang_scheduling: Cluster) -> None:
    """Its owner was too early. On one node the extender refuses it; on the other there would be room without `low`."""
    api = gang_scheduling.api
    high = {"metadata": {"name": "high"}, "value": 1000}
    api.create_if_missing("/apis/scheduling.k8s.io/v1/priorityclasses", high)
    low = pod("low", "3")
    low["spec"]["nodeName"] = "node-b"
    api.create(PODS, low)
    owner = Owner(api, "gangs")
    _await_taken(api, owner)
    owner.submit("eager", cpu="2", worker=3)
    owner.await_phase("eager", "Waiting")
    group = "scheduling.kubeflow.org"
    labels = {f"{group}/gang": "eager", f"{group}/member": "worker-0", f"{group}/attempt": "1"}
    early = pod("early", "2", labels, NAME)
    early["spec"]["priorityClassName"] = "high"
    api.create(PODS, early)
    eventually(lambda: "waits for capacity" in str(api.get(f"{PODS}/early")["status"].get("conditions")))
    never(lambda: api.find(f"{PODS}/low") is None, 2)
    assert owner.status("eager")["phase"] == "Waiting"


def _await_taken(api: Api, owner: Owner) -> None:
    """Waits until the gang scheduler knows the pod on node-b: two whole nodes are no longer free."""
    names = (f"probe-{number}" for number in itertools.count())

    def is_known() -> bool:
        name = next(names)
        owner.submit(name, cpu="4", worker=2)
        phase = eventually(lambda: owner.status(name).get("phase"))
        api.delete(f"{GANGS.format('gangs')}/{name}")
        return bool(phase == "Waiting")

    eventually(is_known)
