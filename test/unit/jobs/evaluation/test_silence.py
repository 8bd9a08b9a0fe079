"""Which children are asked about because their status says nothing, when, and what the job says then."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import World, waiting, world
from helpers.manifests import master, workers
from tfjob_controller.api.common.core import (
    Condition,
    ContainerState,
    ContainerStatus,
    InitContainer,
    Running,
    Terminated,
)
from tfjob_controller.jobs.evaluation.silence import (
    NOT_STARTED,
    PERIOD_SECONDS,
    SILENT_SECONDS,
    explained,
    unexplained,
)
from tfjob_controller.jobs.state.replica_state import PATIENCE_SECONDS
from tfjob_controller.util.timestamps import format_time

WARNING = 'FailedMount: MountVolume.SetUp failed for volume "s" : secret "keys" not found'


@pytest.fixture
def cluster() -> World:
    """A job whose pods have been on their nodes for long and have started no container."""
    cluster = world(master(), workers(2))
    cluster.settle()
    for replica in ("master-0", "worker-0", "worker-1"):
        cluster.hangs(replica)
    cluster.settle()
    cluster.advance(SILENT_SECONDS)
    return cluster


def asked(cluster: World) -> list[str]:
    """Returns the replicas whose pods are asked about."""
    names = {pod.metadata.uid: state.replica.id for state in cluster.state.replica_states for pod in state.pods}
    return [names[uid] for uid in unexplained(cluster.state)]


def uid_of(cluster: World, replica_id: str) -> str:
    return cluster.pods_of(replica_id)[-1].metadata.uid


def test_pods_that_start_no_container_are_asked_about_in_the_order_of_the_plan(cluster: World) -> None:
    assert asked(cluster) == ["master-0", "worker-0", "worker-1"]


def test_a_pod_is_given_time_to_start_before_it_is_asked_about() -> None:
    cluster = world(master())
    cluster.settle()
    cluster.hangs("master-0")
    assert cluster.settle().wake_after_seconds == SILENT_SECONDS
    cluster.advance(SILENT_SECONDS - 1)
    assert asked(cluster) == []
    cluster.advance(1)
    assert asked(cluster) == ["master-0"]


def _starts(cluster: World) -> None:
    cluster.runs("master-0")


def _initializes(cluster: World) -> None:
    done = waiting("", name="fetch", last=Terminated(0))
    cluster.pod("master-0", init_container_statuses=(done,))


def _cannot_pull(cluster: World) -> None:
    cluster.pod("master-0", container_statuses=(waiting("ErrImagePull", "no such image"),))


def _is_deleted(cluster: World) -> None:
    cluster.pod_deleted("master-0")


def _has_failed(cluster: World) -> None:
    cluster.pod("master-0", phase="Failed", reason="Evicted")


@pytest.mark.parametrize("change", [_starts, _initializes, _cannot_pull, _is_deleted, _has_failed])
def test_a_pod_is_not_asked_about_once_its_status_says_more(cluster: World, change: Callable[[World], None]) -> None:
    change(cluster)
    assert asked(cluster) == ["worker-0", "worker-1"]


def test_a_pod_without_a_node_is_not_asked_about() -> None:
    cluster = world(master())
    cluster.settle()
    cluster.pod("master-0", conditions=(Condition("PodScheduled", "False", "Unschedulable", "no room"),))
    cluster.advance(60)
    assert asked(cluster) == []


def test_the_job_says_the_warning_and_how_many_wait(cluster: World) -> None:
    uids = unexplained(cluster.state)
    cluster.warnings.update(explained(uids, {uid_of(cluster, "worker-0"): WARNING}))
    result = cluster.settle()
    assert cluster.job.status.reason == f"worker-0: {WARNING} (and 1 more wait)"
    assert result.wake_after_seconds == PERIOD_SECONDS


def test_pods_before_the_first_warning_have_no_words() -> None:
    assert explained(["a", "b", "c"], {"b": WARNING}) == {"b": WARNING, "c": NOT_STARTED}
    assert explained(["a", "b"], {}) == {}


def test_a_job_that_creates_no_pod_is_asked_about_and_its_warning_is_the_reason() -> None:
    cluster = world(master())
    cluster.settle()
    cluster.advance(31)
    cluster.settle()
    assert cluster.job.status.reason.startswith("master-0: no pod after 30 s")
    (uid,) = unexplained(cluster.state)
    assert uid == cluster.jobs[cluster.name("master-0")].metadata.uid
    cluster.warnings[uid] = "FailedCreate: Error creating: exceeded quota"
    assert cluster.settle().wake_after_seconds == PERIOD_SECONDS
    assert cluster.job.status.reason == "master-0: FailedCreate: Error creating: exceeded quota"


def _blocked(cluster: World, *, is_sidecar: bool) -> None:
    """The kubelet runs an init container: a job, or a sidecar whose startup probe has not succeeded."""
    running = ContainerState(running=Running(started_at=format_time(cluster.now)))
    (pod,) = cluster.pods_of("worker-0")
    policy = "Always" if is_sidecar else ""
    spec = replace(pod.spec, init_containers=(InitContainer("mesh", "Always"), InitContainer("fetch", policy)))
    cluster.pods[cluster.name("worker-0")] = [replace(pod, spec=spec)]
    statuses = (ContainerStatus("mesh", state=running, started=True), ContainerStatus("fetch", state=running))
    cluster.pod("worker-0", init_container_statuses=statuses)


@pytest.mark.parametrize(
    ("is_sidecar", "reason"),
    [
        (False, "worker-0: init container fetch is still running"),
        (True, "worker-0: sidecar fetch has not started: its startup probe has not succeeded yet"),
    ],
)
def test_a_container_for_which_a_pod_waits_is_named_after_half_a_minute(
    cluster: World, is_sidecar: bool, reason: str
) -> None:
    for replica in ("master-0", "worker-1"):
        cluster.runs(replica)
    _blocked(cluster, is_sidecar=is_sidecar)
    assert cluster.settle().wake_after_seconds == (SILENT_SECONDS if is_sidecar else PATIENCE_SECONDS + 1)
    assert cluster.job.status.reason == ""
    cluster.advance(PATIENCE_SECONDS + 1)
    cluster.settle()
    assert cluster.job.status.reason == reason
    assert asked(cluster) == (["worker-0"] if is_sidecar else [])
    cluster.runs("worker-0")
    cluster.settle()
    assert cluster.job.status.reason == ""


def test_a_job_that_is_cleaned_up_asks_about_nothing(cluster: World) -> None:
    cluster.exits("master-0", 0)
    cluster.job_ends("master-0", "Complete")
    cluster.sync()
    assert cluster.job.status.phase == "CleanUp"
    assert unexplained(cluster.state) == []
