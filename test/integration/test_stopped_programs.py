"""What users are told of a status after the program that reported it has stopped, by the Leases of real programs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.gangscheduler import extender_url, running_gang_scheduler
from helpers.manifests import gang_job
from helpers.poll import eventually
from localcluster.gangscheduler import GangScheduler
from tfjob_controller.client.client import Client
from tfjob_controller.client.diagnostics.collection import collect_diagnostics
from tfjob_controller.client.diagnostics.diagnosis import Diagnosis, diagnose
from tfjob_controller.client.gangqueue import read_queue
from tfjob_controller.client.job import Job
from tfjob_controller.client.reader import Connection
from tfjob_controller.client.statusreports import CONTROLLER, GANG_SCHEDULER
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.http.transport import Transport
from tfjob_controller.kube.requester import server_now

pytestmark = pytest.mark.cluster

NAMESPACE, SYSTEM = "gangs", "tfjob-system"


@contextlib.contextmanager
def programs(cluster: Cluster) -> Iterator[None]:
    """The controller and the gang scheduler with its kube-scheduler, as they are deployed: both elect a leader."""
    election = {"leaderElect": True, "resourceNamespace": SYSTEM, "resourceName": GANG_SCHEDULER}
    elected = {"leader_elect": True, "leader_elect_lease_namespace": SYSTEM}
    with (
        running_gang_scheduler(cluster.kubeconfig) as scheduler,
        GangScheduler(cluster.own, extender_url(scheduler), kubeconfig=cluster.kubeconfig, leader_election=election),
        running_controller(cluster.kubeconfig, NAMESPACE, **elected),
    ):
        yield


def renewal(cluster: Cluster, program: str) -> datetime:
    """When the program renewed its Lease last, by the clock of the API server."""
    lease = cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{program}")
    return max(datetime.fromisoformat(entry["time"]) for entry in lease["metadata"]["managedFields"])


@pytest.fixture
def requester(gang_cluster: Cluster) -> Iterator[Transport]:
    gang_cluster.api.create_if_missing("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    transport = Transport(load_config(str(gang_cluster.kubeconfig)), qps=0)
    yield transport
    transport.close()
    for program in (CONTROLLER, GANG_SCHEDULER):
        gang_cluster.api.delete(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{program}")


def test_reports_are_no_longer_the_present_state_once_their_programs_have_stopped(
    gang_cluster: Cluster, requester: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explained(job: Job) -> Diagnosis:
        return diagnose(collect_diagnostics(requester, job.snapshot), server_now(requester))

    with programs(gang_cluster):
        Jobs(gang_cluster.api, NAMESPACE).submit(gang_job("large", 20))
        job = Client.over(requester, NAMESPACE).job("large")
        eventually(lambda: explained(job.refresh()).now.startswith("its gang does not fit even"))
        # They lead before their Leases are in the watch cache of the API server.
        eventually(lambda: job.describe().hints == [])
        queue = read_queue(requester, NAMESPACE)
        assert queue.report is not None
        assert queue.report.state == "running"
    renewals = {program: renewal(gang_cluster, program) for program in (CONTROLLER, GANG_SCHEDULER)}
    # The controller stops first, and programs take their time on a busy machine.
    later = renewals[GANG_SCHEDULER] + timedelta(minutes=12, seconds=45)
    minutes = {program: (later - renewed) // timedelta(minutes=1) for program, renewed in renewals.items()}
    monkeypatch.setattr(requester, "server_time", lambda: later)
    diagnosis = explained(job)
    assert diagnosis.now.startswith("the gang scheduler stopped 12m ago; its last report: its gang does not fit even")
    deployment = "check its Deployment: kubectl get deployment {} -n tfjob-system"
    assert diagnosis.next == f"{deployment.format(GANG_SCHEDULER)}; nothing changes until it runs"
    queue = read_queue(requester, NAMESPACE)
    assert queue.report is not None
    what = "its last report may be out of date"
    notices = [
        f"The {title} stopped {minutes[program]}m ago; {what}; {deployment.format(program)}"
        for title, program in (("controller", CONTROLLER), ("gang scheduler", GANG_SCHEDULER))
    ]
    assert queue.report.notice(later) == notices[1]
    hints = Job(Connection(requester, NAMESPACE, "here"), job.snapshot).describe().hints
    assert hints == [f"{notice}." for notice in notices]
