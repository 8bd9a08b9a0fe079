"""The rules of controller/urgency.py: which changes of children go before the first syncs of new jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tfjob_controller.api.core import (
    Condition,
    ContainerState,
    ContainerStatus,
    Job,
    JobStatus,
    Pod,
    PodMeta,
    PodStatus,
    Running,
    Service,
    Terminated,
    Waiting,
)
from tfjob_controller.api.gang import Gang, GangStatus
from tfjob_controller.controller.urgency import LIVE, URGENT, of_gang, of_job, of_other, of_pod
from tfjob_controller.kube.meta import ObjectMeta

GOES = "2026-01-01T00:00:00Z"
META = ObjectMeta(name="a", namespace="team")
POD_META = PodMeta(name="a", namespace="team")
PENDING = Pod(POD_META, status=PodStatus("Pending"))


IDLE = ContainerState()


def pod(phase: str, *containers: ContainerStatus, **meta: Any) -> Pod:
    return Pod(replace(POD_META, **meta), status=PodStatus(phase, container_statuses=containers))


def container(state: ContainerState = IDLE, *, restarts: int = 0, ready: bool = False) -> ContainerStatus:
    return ContainerStatus("tensorflow", ready, restarts, state)


def gang(**status: Any) -> Gang:
    return Gang(META, status=GangStatus(**status))


RUNS = container(ContainerState(running=Running()))
ENDED = container(ContainerState(terminated=Terminated(1)))


@pytest.mark.parametrize(
    ("priority", "old", "new", "expected"),
    [
        pytest.param(of_pod, PENDING, pod("Running", RUNS), LIVE, id="a pod starts"),
        pytest.param(of_pod, pod("Pending", container()), pod("Pending", RUNS), LIVE, id="its container starts"),
        pytest.param(of_pod, pod("Running"), pod("Succeeded"), URGENT, id="a pod ends"),
        pytest.param(of_pod, pod("Running"), pod("Running", deletion_timestamp=GOES), URGENT, id="a pod goes"),
        pytest.param(of_pod, pod("Running", RUNS), pod("Running", ENDED), URGENT, id="a container ends"),
        pytest.param(of_pod, pod("Running", RUNS), pod("Running", container(restarts=1)), URGENT, id="it runs again"),
        pytest.param(
            of_pod,
            PENDING,
            replace(PENDING, status=PodStatus("Pending", conditions=(Condition("PodScheduled", "True"),))),
            LIVE,
            id="a pod gets a node",
        ),
        pytest.param(
            of_pod,
            pod("Pending", container()),
            pod("Pending", container(ContainerState(waiting=Waiting("ImagePullBackOff")))),
            LIVE,
            id="why a pod waits",
        ),
        pytest.param(of_pod, pod("Running", RUNS), pod("Running", replace(RUNS, ready=True)), LIVE, id="it is ready"),
        pytest.param(of_job, Job(META), Job(META, status=JobStatus(active=1, ready=1)), LIVE, id="a Job's figures"),
        pytest.param(
            of_job,
            Job(META),
            Job(META, status=JobStatus(conditions=(Condition("Failed", "True"),))),
            URGENT,
            id="a Job is over",
        ),
        pytest.param(of_job, Job(META), Job(replace(META, deletion_timestamp=GOES)), URGENT, id="a Job goes"),
        pytest.param(of_gang, gang(phase="Waiting"), gang(phase="Admitted"), URGENT, id="a gang gets room"),
        pytest.param(of_gang, gang(attempt=1), gang(attempt=2), URGENT, id="a gang gets other room"),
        pytest.param(of_gang, gang(), gang(target_members={"worker": 3}), URGENT, id="a gang is to be resized"),
        pytest.param(of_gang, gang(position=7), gang(position=6), LIVE, id="a gang moves on in the queue"),
        pytest.param(of_other, Service(META), Service(META), LIVE, id="a Service changes"),
        pytest.param(
            of_other, Service(META), Service(replace(META, deletion_timestamp=GOES)), URGENT, id="a Service goes"
        ),
    ],
)
def test_how_urgent_a_change_of_a_child_is(
    priority: Callable[[Any, Any], int], old: Any, new: Any, expected: int
) -> None:
    assert priority(old, new) == expected
