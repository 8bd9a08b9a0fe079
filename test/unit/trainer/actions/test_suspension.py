"""The rules of trainer/actions/suspension.py: when those that go on together may be resumed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from helpers.clusterinmemory import START, plan_of
from helpers.manifests import master
from helpers.trainworld import train_plan
from tfjob_controller.api.common.core import BatchJob, JobSpec, Pod, PodMeta, PodStatus
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.trainer.actions.suspension import is_any_stopping
from tfjob_controller.trainer.plan.model import Plan
from tfjob_controller.trainer.state.replica_state import LOST_AFTER_SECONDS, RUNNING, ReplicaState
from tfjob_controller.util.timestamps import format_time

JUST_NOW = format_time(START)
LONG_AGO = format_time(START - timedelta(seconds=LOST_AFTER_SECONDS + 1))


def stops(plan: Plan, job: BatchJob | None, deleted: str | None, phase: str) -> bool:
    pod = Pod(PodMeta(name="p", deletion_timestamp=deleted), status=PodStatus(phase=phase))
    return is_any_stopping(plan, [ReplicaState(plan.replicas.chief, RUNNING, job=job, pods=(pod,))], START)


@pytest.mark.parametrize(
    ("suspended", "deleted", "phase", "expected"),
    [
        pytest.param(True, None, "Running", True, id="its pod does not know yet that it must go"),
        pytest.param(True, None, "Failed", False, id="its pod has ended by itself"),
        pytest.param(False, None, "Running", False, id="its Job goes on"),
        pytest.param(None, None, "Running", False, id="it has no Job any more"),
        pytest.param(False, JUST_NOW, "Running", True, id="its pod goes"),
        pytest.param(False, JUST_NOW, "Failed", True, id="its pod has ended as it was told to"),
        pytest.param(True, LONG_AGO, "Running", False, id="its pod is lost with its node"),
    ],
)
def test_a_set_is_not_resumed_while_one_of_it_stops(
    suspended: bool | None, deleted: str | None, phase: str, expected: bool
) -> None:
    job = None if suspended is None else BatchJob(ObjectMeta(name="j"), JobSpec(suspend=suspended))
    assert stops(train_plan(), job, deleted, phase) is expected


def test_where_each_goes_on_alone_nobody_waits_for_another() -> None:
    job = BatchJob(ObjectMeta(name="j"), JobSpec(suspend=True))
    assert not stops(plan_of(master()), job, JUST_NOW, "Running")
