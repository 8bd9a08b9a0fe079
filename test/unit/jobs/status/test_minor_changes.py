"""The rules of jobs/status/update.py: which changes of a status may wait."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import START
from helpers.trainworld import running_train_world
from tfjob_controller.api.common.status import JobCondition, Progress
from tfjob_controller.jobs.conditions import NORMAL, StatusEvent
from tfjob_controller.jobs.status.update import StatusResult, is_minor
from tfjob_controller.jobs.trainingjob import RoleStatus, TrainingStatus
from tfjob_controller.util.timestamps import format_time


def said(condition: str, status: str = "True", message: str = "") -> JobCondition:
    return JobCondition(condition, status, "Reason", message, format_time(START), 1)


OLD = TrainingStatus(phase="Running", state="Running", conditions=(said("Running"), said("Scheduled", message="a")))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param({"roles": (RoleStatus("node", {"Running": 2}, 1),)}, True, id="how-many-are-ready"),
        pytest.param({"reason": "node-1: ImagePullBackOff"}, True, id="what-is-waited-for"),
        pytest.param({"roles": (RoleStatus("node", {"Running": 2}),)}, True, id="counts"),
        pytest.param({"scaled_replicas": 2}, True, id="how-many-exist"),
        pytest.param({"succeeded_indexes": ("node-0",)}, True, id="who-has-succeeded"),
        pytest.param({"progress": Progress(done=1)}, True, id="steps"),
        pytest.param({"conditions": (said("Running"), said("Scheduled", message="b"))}, True, id="place-in-the-queue"),
        pytest.param({"conditions": (said("Running", message="b"), said("Scheduled"))}, False, id="other-words"),
        pytest.param({"conditions": (said("Running", "False"), said("Scheduled"))}, False, id="a-condition"),
        pytest.param({"phase": "CleanUp"}, False, id="the-phase"),
        pytest.param({"restarts": 1}, False, id="a-restart-decides-what-is-of-which-generation"),
        pytest.param({"restart_counts": {"uid": 1}}, False, id="restart-counts"),
        pytest.param({"start_time": format_time(START)}, False, id="a-time"),
        pytest.param({"observed_generation": 2}, False, id="the-generation"),
    ],
)
def test_figures_may_wait_and_nothing_else(changed: dict[str, Any], expected: bool) -> None:
    assert is_minor(OLD, StatusResult(replace(OLD, **changed))) is expected


def test_changes_with_events_or_urgent_ones_are_not_delayed() -> None:
    new = replace(OLD, roles=(RoleStatus("node", {"Running": 2}, 1),))
    assert not is_minor(OLD, StatusResult(new, events=(StatusEvent(NORMAL, "Reason", "words"),)))
    assert not is_minor(OLD, StatusResult(new, is_urgent=True))


def test_nodes_of_a_set_that_become_ready_one_by_one_cost_no_write_each() -> None:
    cluster = running_train_world(nodes=3)
    cluster.pod("node-2", phase="Pending", container_statuses=())
    before = cluster.status
    assert is_minor(before, cluster.sync())
