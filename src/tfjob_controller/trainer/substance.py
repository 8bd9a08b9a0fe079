"""Whether a change of the status may wait: mere figures, and words that change as replicas come up one by one."""

from __future__ import annotations

from msgspec.structs import replace

from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.trainer import conditions
from tfjob_controller.trainer.status import StatusResult


def is_minor(old: TrainingStatus, result: StatusResult) -> bool:
    """Only figures differ, and nothing is lost if they are written later."""
    if result.events or result.is_urgent:
        return False
    return _of_substance(old) == _of_substance(result.status)


def _of_substance(status: TrainingStatus) -> TrainingStatus:
    return replace(
        status,
        reason="",
        replica_statuses=(),
        ready={},
        worker_replicas=0,
        succeeded_indexes=(),
        progress=None,
        conditions=tuple(
            replace(each, message="") if each.type == conditions.SCHEDULED else each for each in status.conditions
        ),
    )
