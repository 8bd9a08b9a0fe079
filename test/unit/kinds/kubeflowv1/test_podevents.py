"""The events of jobs of `kubeflow.org/v1` about their pods, and those of deleted jobs, have upstream's words."""

from __future__ import annotations

import pytest

from helpers.controllerbench import NAMESPACE, POD_PATH
from helpers.memoryapi import Object
from helpers.v1bench import NAME, V1Bench
from tfjob_controller.api.kubeflowv1.types import V1_KINDS
from tfjob_controller.controller.reporter import ToldEvents
from tfjob_controller.jobs.conditions import NORMAL, PodEvent, StatusEvent
from tfjob_controller.jobs.plan.gangterms import NO_GANGS

Event = tuple[str, str, str]
IMAGE = 'Back-off pulling image "training:1"'


def started(bench: V1Bench, workers: int = 1, *, policy: str = "Always") -> V1Bench:
    bench.create({"Worker": workers}, policy=policy)
    bench.settle()
    return bench


def shows(bench: V1Bench, replica: str, state: Object, *, restarts: int = 0, field: str = "containerStatuses") -> None:
    """The kubelet of a pod that has not ended shows this state of a container."""
    container = {"name": V1_KINDS[bench.kind].container, "state": state, "restartCount": restarts, "ready": False}
    status = {"phase": "Pending" if "waiting" in state else "Running", field: [container]}
    bench.api.change(f"{POD_PATH}/{NAME}-{replica}", {"status": status})


def waits(bench: V1Bench, replica: str, reason: str, message: str, *, field: str = "containerStatuses") -> None:
    shows(bench, replica, {"waiting": {"reason": reason, "message": message}}, field=field)


def ends(bench: V1Bench, replica: str, exit_code: int, *, restarts: int = 0) -> None:
    ended = {"exitCode": exit_code, "reason": "Error", "message": "no GPU", "finishedAt": "2026-01-01T00:00:00Z"}
    shows(bench, replica, {"terminated": ended}, restarts=restarts)


def told(bench: V1Bench, since: int = 0) -> list[Event]:
    """The events about pods."""
    own = ("ExitedWithCode", "Error pod ")
    return [event for event in bench.recorder.events[since:] if event[1] in own or event[2].startswith(own)]


@pytest.fixture
def bench() -> V1Bench:
    return V1Bench("PyTorchJob")


def test_an_exit_is_told_once_and_the_next_one_again(bench: V1Bench) -> None:
    started(bench)
    ends(bench, "worker-0", 3)
    bench.settle()
    bench.settle()
    exited = ("Normal", "ExitedWithCode", f"Pod: {NAMESPACE}.{NAME}-worker-0 exited with code 3")
    failed = (
        "Warning",
        "Error",
        f"Error pod {NAME}-worker-0 container pytorch exitCode: 3 terminated message: no GPU",
    )
    assert told(bench) == [exited, failed]
    bench.runs("worker-0", restarts=1)
    bench.settle()
    assert told(bench) == [exited, failed]
    ends(bench, "worker-0", 3, restarts=1)
    bench.settle()
    assert told(bench) == [exited, failed] * 2


def test_a_success_is_an_exit_and_no_problem(bench: V1Bench) -> None:
    started(bench, 2)
    bench.exits("worker-0", 0)
    bench.settle()
    assert told(bench) == [("Normal", "ExitedWithCode", f"Pod: {NAMESPACE}.{NAME}-worker-0 exited with code 0")]


def test_a_pod_that_has_failed_is_no_active_one(bench: V1Bench) -> None:
    started(bench, policy="Never")
    bench.exits("worker-0", 1)
    bench.settle()
    assert [reason for _, reason, _ in told(bench)] == ["ExitedWithCode"]


@pytest.mark.parametrize("field", ["containerStatuses", "initContainerStatuses"])
def test_a_container_that_waits_is_told_once_for_each_reason(bench: V1Bench, field: str) -> None:
    started(bench)
    waits(bench, "worker-0", "ContainerCreating", "", field=field)
    for _ in range(3):
        for reason in ("ErrImagePull", "ImagePullBackOff"):
            waits(bench, "worker-0", reason, IMAGE, field=field)
            bench.settle()
    note = f"Error pod {NAME}-worker-0 container pytorch waiting message: {IMAGE}"
    assert told(bench) == [("Warning", "ErrImagePull", note), ("Warning", "ImagePullBackOff", note)]


def test_one_event_names_all_pods_with_the_same_problem(bench: V1Bench) -> None:
    started(bench, 13)
    for index in range(13):
        waits(bench, f"worker-{index}", "ImagePullBackOff", f"{IMAGE} of worker {index}")
    bench.settle()
    ((_, _, note),) = told(bench)
    assert note.startswith(
        f"Error pod {NAME}-worker-0 container pytorch waiting message: {IMAGE} of worker 0 (also for "
    )
    assert note.endswith(", and 2 more)")


def test_pods_that_wait_one_after_another_leave_room_for_other_events(bench: V1Bench) -> None:
    started(bench, 6)
    for index in range(6):
        waits(bench, f"worker-{index}", "ImagePullBackOff", f"{IMAGE} of worker {index}")
        bench.settle()
    assert [note[-1] for _, _, note in told(bench)] == ["0", "1", "2"]
    for index in range(6):
        ends(bench, f"worker-{index}", 1)
        bench.settle()
    assert [reason for _, reason, _ in told(bench)].count("Error") == 6


def test_a_pod_without_containers_is_told_by_its_newest_condition(bench: V1Bench) -> None:
    started(bench)
    conditions = [
        {"type": "Ready", "status": "False", "reason": "Old", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes",
            "lastTransitionTime": "2026-01-01T00:00:05Z",
        },
    ]
    bench.api.change(f"{POD_PATH}/{NAME}-worker-0", {"status": {"phase": "Pending", "conditions": conditions}})
    bench.settle()
    assert told(bench) == [("Warning", "Unschedulable", f"Error pod {NAME}-worker-0 condition message: 0/1 nodes")]


def test_the_next_process_tells_only_what_is_new(bench: V1Bench) -> None:
    started(bench, 2)
    waits(bench, "worker-0", "ImagePullBackOff", IMAGE)
    bench.settle()
    before = len(bench.recorder.events)
    bench.restart(NO_GANGS)
    bench.settle()
    assert told(bench, before) == []
    waits(bench, "worker-1", "ImagePullBackOff", IMAGE)
    bench.settle()
    assert len(told(bench, before)) == 1


def test_the_pods_of_a_suspended_job_are_not_told(bench: V1Bench) -> None:
    started(bench)
    bench.runs("worker-0")
    bench.settle()
    bench.change(runPolicy={"suspend": True})
    ends(bench, "worker-0", 143)
    bench.settle()
    assert told(bench) == []


def test_the_exits_of_an_mpijob_are_not_told() -> None:
    bench = V1Bench("MPIJob")
    bench.create({"Launcher": 1})
    bench.settle()
    bench.exits("launcher", 1)
    bench.settle()
    assert told(bench) == []


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("TFJob", "SuccessfulDeleteJob"),
        ("XGBoostJob", "SuccessfulDeleteJob"),
        ("MPIJob", "SuccessfulDeleteJob"),
        ("PyTorchJob", "SuccessfulDeletePod"),
        ("JAXJob", "SuccessfulDeletePod"),
        ("PaddleJob", "SuccessfulDeletePod"),
    ],
)
def test_a_job_that_is_deleted_after_its_time_to_live_has_an_event(kind: str, reason: str) -> None:
    bench = V1Bench(kind)
    decides, replica = {"MPIJob": ("Launcher", "launcher"), "XGBoostJob": ("Master", "master-0")}.get(
        kind, ("Worker", "worker-0")
    )
    bench.create({decides: 1}, runPolicy={"ttlSecondsAfterFinished": 3})
    bench.settle()
    bench.exits(replica, 0)
    bench.settle()
    bench.clock.advance(4)
    bench.settle()
    assert f"{bench.path}/{NAME}" not in bench.api.objects
    deleted = ("Normal", reason, f"Deleted job: {NAME}")
    assert bench.recorder.events[-1] == deleted
    assert bench.recorder.events.count(deleted) == 1


def test_what_was_told_of_a_pod_is_forgotten_with_it() -> None:
    events = [PodEvent(uid, uid, ("x",), StatusEvent(NORMAL, "x", uid)) for uid in "ab"]
    told = ToldEvents(is_known=False)
    assert told.new(events, {"a", "b"}) == events
    assert told.new(events[:1], {"a"}) == []
    assert told.new(events, {"a", "b"}) == events[1:]
