"""The gang scheduler of the leading kube-scheduler works, and the other one takes over with all reservations."""

from __future__ import annotations

import socket
from typing import Any

from helpers.cluster import Cluster
from helpers.gangowner import Owner
from helpers.gangscheduler import hold_lease, running_gang_scheduler
from helpers.poll import eventually
from localcluster.api import Api

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
NAME = "gang-leadership"


def hold(api: Api, holder: str) -> None:
    hold_lease(api, "kube-system", NAME, holder)


def await_phase_while_led(cluster: Cluster, gang: str, phase: str) -> dict[str, Any]:
    """The gang's status once it is in that phase; until then the Lease is renewed, as by our own kube-scheduler.

    One renewal would not do: the gang scheduler counts those only that follow what it has read first.
    """
    owner = Owner(cluster.api, "gangs")

    def is_so() -> bool:
        hold(cluster.api, socket.gethostname())
        return bool(owner.status(gang).get("phase") == phase)

    eventually(is_so)
    return owner.status(gang)


def test_a_replica_works_with_all_reservations_while_its_kube_scheduler_leads_and_then_ends(
    gang_cluster: Cluster,
) -> None:
    exits: list[int] = []
    owner = Owner(gang_cluster.api, "gangs")
    with running_gang_scheduler(gang_cluster.kubeconfig):
        owner.submit("first", worker=6)
        owner.await_phase("first", "Admitted")
    hold(gang_cluster.api, "another")
    with running_gang_scheduler(
        gang_cluster.kubeconfig, leader_lease_name=NAME, exit_process=exits.append
    ) as scheduler:
        owner.submit("second", worker=6)
        assert not scheduler.problems()
        assert "phase" not in owner.status("second")
        assert await_phase_while_led(gang_cluster, "second", "Waiting")["position"] == 1
        assert scheduler.state.view.statistics().reserved_members == 6
        assert exits == []
        hold(gang_cluster.api, "another")
        eventually(lambda: exits == [1])
    gang_cluster.api.delete(f"{LEASES}/{NAME}")
