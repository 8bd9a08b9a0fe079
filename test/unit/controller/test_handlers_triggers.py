"""The rules of controller/handlers.py: a sync says what caused it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import structlog
from msgspec.structs import replace

from tfjob_controller.api.common.core import (
    BatchJob,
    Condition,
    ContainerState,
    ContainerStatus,
    JobStatus,
    Pod,
    PodMeta,
    PodStatus,
    Running,
    Service,
    Terminated,
)
from tfjob_controller.api.gang import Gang, GangStatus
from tfjob_controller.controller.handlers import (
    ADDED,
    DELETED,
    HIGH,
    MAX_LOGGED,
    NORMAL,
    TriggerLog,
    child_priority,
    gang_priority,
    job_priority,
    pod_priority,
)
from tfjob_controller.kube.meta import ObjectMeta

POD = Pod(PodMeta(name="train-worker-0", namespace="team", resource_version="17"))


def told(triggers: TriggerLog, key: str) -> list[Any]:
    with structlog.testing.capture_logs() as logs:
        triggers.log_triggers(key)
    return logs


def test_what_came_together_is_reported_once_and_forgotten() -> None:
    triggers = TriggerLog(enabled=True)
    triggers.record("team/train", ADDED, POD)
    triggers.record("team/other", ADDED, POD)
    triggers.record("team/train", DELETED, POD)
    words = [f"{type_} Pod train-worker-0 resourceVersion=17" for type_ in (ADDED, DELETED)]
    line = {"event": "sync started", "log_level": "debug", "triggers_omitted": 0}
    assert told(triggers, "team/train") == [{**line, "triggers": words}]
    assert told(triggers, "team/train") == [{**line, "triggers": []}]


def test_of_many_triggers_the_first_are_logged_and_the_others_counted() -> None:
    triggers = TriggerLog(enabled=True)
    for _ in range(MAX_LOGGED + 5):
        triggers.record("team/train", ADDED, POD)
    (line,) = told(triggers, "team/train")
    assert (len(line["triggers"]), line["triggers_omitted"]) == (MAX_LOGGED, 5)


def test_nothing_is_noted_unless_it_is_asked_for() -> None:
    triggers = TriggerLog(enabled=False)
    triggers.record("team/train", ADDED, POD)
    triggers.record_timer("team/train", 3.0)
    assert told(triggers, "team/train") == []


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
        pytest.param(pod_priority, PENDING, pod("Running", RUNS), NORMAL, id="a pod starts"),
        pytest.param(pod_priority, pod("Running"), pod("Succeeded"), HIGH, id="a pod ends"),
        pytest.param(pod_priority, pod("Running"), pod("Running", deletion_timestamp=GOES), HIGH, id="a pod goes"),
        pytest.param(pod_priority, pod("Running", RUNS), pod("Running", ENDED), HIGH, id="a container ends"),
        pytest.param(
            pod_priority, pod("Running", RUNS), pod("Running", container(restarts=1)), HIGH, id="it runs again"
        ),
        pytest.param(
            pod_priority,
            PENDING,
            replace(PENDING, status=PodStatus("Pending", conditions=(Condition("PodScheduled", "True"),))),
            NORMAL,
            id="a pod gets a node",
        ),
        pytest.param(
            job_priority,
            BatchJob(META),
            BatchJob(META, status=JobStatus(active=1, ready=1)),
            NORMAL,
            id="a Job's figures",
        ),
        pytest.param(
            job_priority,
            BatchJob(META),
            BatchJob(META, status=JobStatus(conditions=(Condition("Failed", "True"),))),
            HIGH,
            id="a Job is over",
        ),
        pytest.param(
            job_priority, BatchJob(META), BatchJob(replace(META, deletion_timestamp=GOES)), HIGH, id="a Job goes"
        ),
        pytest.param(gang_priority, gang(phase="Waiting"), gang(phase="Admitted"), HIGH, id="a gang gets room"),
        pytest.param(gang_priority, gang(attempt=1), gang(attempt=2), HIGH, id="a gang gets other room"),
        pytest.param(gang_priority, gang(), gang(target_members={"worker": 3}), HIGH, id="a gang is to be resized"),
        pytest.param(gang_priority, gang(position=7), gang(position=6), NORMAL, id="a gang moves on in the queue"),
        pytest.param(child_priority, Service(META), Service(META), NORMAL, id="a Service changes"),
        pytest.param(
            child_priority,
            Service(META),
            Service(replace(META, deletion_timestamp=GOES)),
            HIGH,
            id="a Service goes",
        ),
    ],
)
def test_how_urgent_a_change_of_a_child_is(
    priority: Callable[[Any, Any], int], old: Any, new: Any, expected: int
) -> None:
    assert priority(old, new) == expected
