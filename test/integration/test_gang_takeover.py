"""Leadership moves between two gang schedulers with many gangs: all are bound, none partly or twice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from helpers.cluster import Cluster
from helpers.gangkeeper import Keeper, Seen
from helpers.poll import eventually
from localcluster import ports, process
from localcluster.api import Api
from localcluster.extender import extender_beside
from localcluster.fakekubelet import make_node
from localcluster.gangscheduler import GangScheduler
from localcluster.ourprogram import EXTENDER, OurProgram
from localcluster.programs import LOOPBACK

pytestmark = pytest.mark.cluster

GANGS, SIZE, NODES = 40, 2, 8
LEASE_NAME = "gang-takeover"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{LEASE_NAME}"
# As shipped, with kube-scheduler's own 15 s: with less a server that hangs for two seconds ends the second leader too.
ELECTION = {"leaderElect": True, "resourceNamespace": "kube-system", "resourceName": LEASE_NAME}
FLAGS = ("--leader-lease-namespace=kube-system", f"--leader-lease-name={LEASE_NAME}", "--bind-timeout=10m")


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod of the Deployment: an extender and its kube-scheduler on a machine of this name."""

    name: str
    extender: OurProgram
    scheduler: GangScheduler


@contextlib.contextmanager
def replica(cluster: Cluster, name: str) -> Iterator[Replica]:
    with ports.reserve(2, LOOPBACK) as (port, probes_port), contextlib.ExitStack() as running:
        extender = extender_beside(cluster.own, port, probes_port, *FLAGS, replica=name)
        running.callback(extender.kill)
        extender.start()
        scheduler = GangScheduler(cluster.own, extender.urls[EXTENDER], leader_election=ELECTION, replica=name)
        running.enter_context(scheduler)
        extender.wait_ready()
        yield Replica(name, extender, scheduler)


def leader(api: Api) -> str:
    """The name of the replica that holds the Lease."""
    lease = api.find(LEASE)
    return str(lease["spec"].get("holderIdentity", "")).partition("_")[0] if lease else ""


def whole(found: dict[str, Seen]) -> int:
    return sum(seen.is_whole for seen in found.values())


def test_leadership_moves_amid_many_gangs_and_all_are_bound_once(gang_cluster: Cluster) -> None:
    if not process.may_name_hosts():
        pytest.skip("this user may make no namespace in which the machine has another name: run as root")
    api = gang_cluster.api
    # The capacity is sufficient for all, and not for one pod more; the fixture's nodes are two of them.
    each = (GANGS * SIZE - 8) // NODES
    for number in range(NODES):
        make_node(api, f"node-{number}", {"cpu": str(each), "memory": "64Gi", "pods": "110"})
    keeper = Keeper(api)
    names = [f"gang-{number:03d}" for number in range(GANGS)]
    # Bound; with one pod that waits, or whose last one comes just then; and those that are just being admitted.
    done, half, late = names[:12], names[12:24], names[24:]
    with replica(gang_cluster, "one") as one, replica(gang_cluster, "two") as two:
        eventually(lambda: leader(api) in ("one", "two"))
        first, second = (one, two) if leader(api) == "one" else (two, one)
        for name in done + half:
            keeper.submit(name, SIZE)
        eventually(lambda: whole(keeper.tend(but=half)) == len(done))
        keeper.await_phase("Admitted", *half)
        for name in half:
            keeper.make_pod(name, "worker-0", 1)
        for name in late:
            keeper.submit(name, SIZE)
        for name in half[::2]:
            keeper.make_pod(name, "worker-1", 1)
        first.scheduler.kill()
        extender = first.extender.identity
        assert extender is not None
        before = whole(keeper.look())
        found = keeper.tend_until_whole(*names, timeout=90)
        assert leader(api) == second.name
        assert process.wait_gone([extender], 60) == []
    assert before < GANGS
    assert {seen.attempt for seen in found.values()} == {1}
    api.delete(LEASE)
