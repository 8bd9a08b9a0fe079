"""The lines of recordings, and the helper that reads them."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from helpers.recordedlives import CREATED, LIVES, parse_job, parse_life, parse_pod, recorded_lives
from recordlives.matrix import DIMENSIONS, cases
from recordlives.play import text_of
from recordlives.statuses import changed_parts, job_status, pod_status
from tfjob_controller.api.common.core import BatchJob, Pod

Object = dict[str, Any]


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}Z"


def container(name: str, **state: Any) -> Object:
    return {"name": name, "state": state, "lastState": {}, "ready": False, "restartCount": 0}


def condition(type_: str, status: str = "True", **fields: str) -> Object:
    return {"type": type_, "status": status, "lastTransitionTime": at(1), **fields}


def pod(phase: str = "Running", **status: Any) -> Object:
    meta = {"name": "x", "uid": "x", "creationTimestamp": at(0)}
    return {"metadata": meta, "spec": {"restartPolicy": "Never"}, "status": {"phase": phase, **status}}


DELETED: Object = {"deletionTimestamp": at(35), "deletionGracePeriodSeconds": 30}
ENDED = {"exitCode": 137, "reason": "OOMKilled", "startedAt": at(3), "finishedAt": at(5)}
LOST = {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None, "finishedAt": None}
AGAIN = {**container("node", running={"startedAt": at(7)}), "ready": True, "restartCount": 2}

PODS = [
    pytest.param(pod("Pending"), "Pending restartPolicy=Never", id="new"),
    pytest.param(
        pod("Pending", conditions=[condition("PodScheduled", "False", reason="Unschedulable")]),
        "Pending restartPolicy=Never PodScheduled=False:Unschedulable@1",
        id="unschedulable",
    ),
    pytest.param(
        pod(
            "Pending",
            startTime=at(1),
            initContainerStatuses=[container("setup", running={"startedAt": at(2)})],
            containerStatuses=[container("node", waiting={"reason": "PodInitializing"})],
        ),
        "Pending restartPolicy=Never started@1 | init setup running@2 | node waiting:PodInitializing",
        id="initializing",
    ),
    pytest.param(
        pod(containerStatuses=[{**AGAIN, "lastState": {"terminated": ENDED}}, container("log", waiting={})]),
        "Running restartPolicy=Never | node running@7 ready restarts=2 last=terminated:OOMKilled:137@5 | log waiting",
        id="restarted in place",
    ),
    pytest.param(
        pod("Failed", reason="Evicted", containerStatuses=[container("node", terminated=LOST)]),
        "Failed restartPolicy=Never reason=Evicted | node terminated:ContainerStatusUnknown:137",
        id="evicted",
    ),
    pytest.param(
        {**pod(), "metadata": {**pod()["metadata"], **DELETED}},
        "Running restartPolicy=Never deleting@35 grace=30",
        id="deleted with a grace period",
    ),
]
JOBS = [
    pytest.param({"spec": {}}, "parallelism=1", id="new"),
    pytest.param(
        {"spec": {"parallelism": 2, "suspend": True}, "status": {"active": 0, "failed": 3, "completedIndexes": "0"}},
        "parallelism=2 suspend failed=3 completedIndexes=0",
        id="suspended",
    ),
    pytest.param(
        {"spec": {}, "status": {"conditions": [condition("Failed", reason="BackoffLimitExceeded")]}},
        "parallelism=1 Failed=True:BackoffLimitExceeded@1",
        id="failed",
    ),
]


@pytest.mark.parametrize(("shown", "line"), PODS)
def test_the_line_of_a_pod_has_what_decisions_read_and_is_read_as_the_controller_decodes_it(
    shown: Object, line: str
) -> None:
    assert pod_status(shown, CREATED) == line
    assert parse_pod("x", line) == msgspec.convert(shown, Pod)


@pytest.mark.parametrize(("shown", "line"), JOBS)
def test_the_line_of_a_job_has_what_decisions_read_and_is_read_as_the_controller_decodes_it(
    shown: Object, line: str
) -> None:
    meta = {"name": "x", "uid": "x", "creationTimestamp": at(0)}
    assert job_status({"metadata": {}, **shown}, CREATED) == line
    assert parse_job("x", line) == msgspec.convert({"metadata": meta, **shown}, BatchJob)


def test_conditions_that_no_decision_reads_are_left_out() -> None:
    assert pod_status(pod(conditions=[condition("Ready")]), CREATED) == "Running restartPolicy=Never"


def test_a_signal_is_kept_after_the_exit_code() -> None:
    killed = container("node", terminated={"exitCode": 137, "signal": 9})
    assert pod_status(pod(containerStatuses=[killed]), CREATED).endswith("node terminated::137:9")


def test_a_life_has_its_inputs_and_what_was_seen_without_comments() -> None:
    lines = [
        "    0.1 job worker-0.1 parallelism=1",
        "    2.4 pod worker-0.1 Pending restartPolicy=Never",
        "    3.0 # delete worker-0",
        "    4.5 pod worker-0.1 gone",
    ]
    life = parse_life(text_of(cases()[1], lines))
    assert life.inputs == {name: cases()[1][name] for name in DIMENSIONS}
    assert [(each.seconds, each.kind, each.replica) for each in life.moments] == [
        (0.1, "job", "worker-0"),
        (2.4, "pod", "worker-0"),
        (4.5, "pod", "worker-0"),
    ]
    job, first, gone = (each.obj for each in life.moments)
    assert isinstance(job, BatchJob)
    assert isinstance(first, Pod)
    assert first.metadata.creation_timestamp == at(2)
    assert gone is None


def test_a_line_of_a_pod_has_only_what_changed_and_is_completed_when_it_is_read() -> None:
    whole = [
        "Pending restartPolicy=Never PodScheduled=True@1 | init a running@1 | node waiting:PodInitializing",
        "Running restartPolicy=Never PodScheduled=True@1 | init a running@1 | node running@2 ready",
        "Running restartPolicy=Never PodScheduled=True@1 deleting@35 grace=9 | init a running@1 | node running@2 ready",
    ]
    changes = [changed_parts(*pair) for pair in itertools.pairwise(["", *whole])]
    assert changes == [whole[0], "Running | node running@2 ready", "deleting@35 grace=9"]
    life = parse_life(text_of(cases()[0], [f"0.1 pod node-0.1 {change}" for change in changes]))
    assert [each.obj for each in life.moments] == [parse_pod("node-0.1", line) for line in whole]


def test_a_change_of_a_container_alone_begins_with_a_bar() -> None:
    before = "Running restartPolicy=Never | log running@1 | node running@2"
    assert changed_parts(before, before.replace("node running@2", "node -")) == "| node -"


def test_all_recordings_can_be_read_and_are_of_the_matrix() -> None:
    inputs = [{name: case[name] for name in DIMENSIONS} for case in cases()]
    lives = list(recorded_lives())
    assert len(lives) == len(list(LIVES.rglob("*.txt")))
    assert all(life.moments and life.inputs in inputs for life in lives)
