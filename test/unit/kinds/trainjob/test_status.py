"""A TrainJob's status in the words of its API, and back. Random ones: test/property/test_trainjob.py."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from helpers.trainworld import train_world, world_in_steps
from tfjob_controller.api.common.status import JobCondition, Metric
from tfjob_controller.api.trainjob.types import JobsStatus, TrainJobStatus
from tfjob_controller.jobs import reasons
from tfjob_controller.jobs.status.update import invalid_status, waiting_status
from tfjob_controller.jobs.trainingjob import RoleStatus, TrainingStatus
from tfjob_controller.kinds.trainjob.status import from_wire, to_wire

NEW = TrainJobStatus()


def condition(type_: str, reason: str) -> JobCondition:
    return JobCondition(type_, "True", reason, "words", "2026-01-01T00:00:00Z", 1)


def nodes(ready: int, **states: int) -> TrainingStatus:
    return TrainingStatus(phase="Running", roles=(RoleStatus("node", states, ready),))


def test_a_new_job_has_no_state_and_no_phase() -> None:
    assert from_wire(NEW) == TrainingStatus()
    assert to_wire(TrainingStatus(), NEW) == NEW


@pytest.mark.parametrize(
    ("state", "told"), [("Unknown", ""), ("Running", "RUNNING"), ("Succeeded", "SUCCESS"), ("Failed", "FAILED")]
)
def test_states_have_other_names(state: str, told: str) -> None:
    status = TrainingStatus(phase="Creating", state=state)
    wire = to_wire(status, NEW)
    assert wire.state == told
    assert told in ("", "RUNNING", "SUCCESS", "FAILED")
    assert from_wire(wire) == status


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param(("Created", reasons.JOB_CREATED), ("Created", "JobsCreationSucceeded"), id="created"),
        pytest.param(("Succeeded", reasons.CHIEF_SUCCEEDED), ("Complete", "AllJobsCompleted"), id="complete"),
        pytest.param(("Failed", reasons.INVALID_SPEC), ("Failed", "JobsBuildFailed"), id="not-built"),
        pytest.param(("Failed", reasons.DEADLINE_EXCEEDED), ("Failed", "DeadlineExceeded"), id="as-it-is"),
        pytest.param(("Suspended", reasons.RESUMED), ("Suspended", "Resumed"), id="resumed"),
    ],
)
def test_conditions_have_the_types_and_reasons_of_the_api(ours: tuple[str, str], theirs: tuple[str, str]) -> None:
    status = TrainingStatus(phase="Running", state="Running", conditions=(condition(*ours),))
    wire = to_wire(status, NEW)
    assert [(each.type, each.reason) for each in wire.conditions] == [theirs]
    assert from_wire(wire) == status


def test_no_two_reasons_become_the_same() -> None:
    every = sorted(reasons.DESCRIPTIONS)
    status = TrainingStatus(phase="Running", conditions=tuple(condition("Failed", each) for each in every))
    wire = to_wire(status, NEW)
    assert len({each.reason for each in wire.conditions}) == len(every)
    assert from_wire(wire).conditions == status.conditions


@pytest.mark.parametrize(
    ("status", "told", "column"),
    [
        pytest.param(nodes(0, Unknown=3), JobsStatus("node", 3, 0, 0, 0, 0, 0), "0/3", id="nothing-was-made-yet"),
        pytest.param(nodes(2, Running=3), JobsStatus("node", 3, 2, 3, 0, 0, 0), "2/3", id="two-are-ready"),
        pytest.param(
            nodes(2, Running=2, Succeeded=1),
            JobsStatus("node", 3, 1, 2, 1, 0, 0),
            "2/3",
            id="who-has-succeeded-is-not-ready-but-counts-in-the-column",
        ),
        pytest.param(
            nodes(1, Running=1, Failed=1, Succeeded=1), JobsStatus("node", 3, 0, 1, 1, 1, 0), "1/3", id="each"
        ),
    ],
)
def test_how_far_the_pods_of_a_step_are(status: TrainingStatus, told: JobsStatus, column: str) -> None:
    wire = to_wire(status, NEW)
    assert wire.jobs_status == (told,)
    assert wire.nodes == column
    assert from_wire(wire).roles == status.roles


def test_only_a_suspended_job_has_suspended_pods() -> None:
    status = replace(nodes(0, Unknown=2), phase="Creating", conditions=(condition("Suspended", reasons.SUSPENDED),))
    assert to_wire(status, NEW).jobs_status[0].suspended == 2


def test_the_column_is_of_the_nodes_whatever_else_there_is() -> None:
    cluster = world_in_steps()
    cluster.settle()
    assert cluster.job.status.nodes == "0/2"
    assert [each.name for each in cluster.job.status.jobs_status] == [
        "node",
        "dataset-initializer",
        "model-initializer",
        "model-exporter",
    ]


def test_what_the_trainer_does_not_decide_stays() -> None:
    before = TrainJobStatus(metrics=(Metric("loss", "0.1", "2026-01-01T00:00:00Z"),), progress="epoch 1", runtime="r")
    wire = to_wire(nodes(0, Running=1), before)
    assert (wire.metrics, wire.progress, wire.runtime) == (before.metrics, before.progress, before.runtime)


@pytest.mark.parametrize(
    ("make", "state", "types"),
    [
        pytest.param(invalid_status, "FAILED", ["Failed"], id="refused"),
        pytest.param(waiting_status, "", ["Created"], id="waits-for-its-runtime"),
    ],
)
def test_a_job_without_a_plan_has_a_status_that_comes_back(make: Any, state: str, types: list[str]) -> None:
    cluster = train_world()
    status = make(cluster.work, "there is no such runtime", cluster.now).status
    wire = to_wire(status, NEW)
    assert from_wire(wire) == status
    assert (wire.state, [each.type for each in wire.conditions if each.status == "True"]) == (state, types)
    assert wire.jobs_status == ()
