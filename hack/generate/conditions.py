"""The conditions of jobs, with the reasons that each can have: those of a TrainJob are a TFJob's, by its own names."""

from __future__ import annotations

from generate.fieldtables import Conditions
from tfjob_controller.jobs import reasons
from tfjob_controller.kinds.trainjob.status import REASONS, TYPES

# Condition and status, with the reasons that it can have.
TFJOB_CONDITIONS: Conditions = {
    ("Created", "True"): (reasons.JOB_CREATED,),
    ("Scheduled", "True"): (
        reasons.GANG_ADMITTED,
        reasons.GANG_SCHEDULED,
    ),
    ("Scheduled", "False"): (
        reasons.WAITING_FOR_SCHEDULER,
        reasons.WAITING_FOR_CAPACITY,
        reasons.EXCEEDS_CLUSTER_CAPACITY,
        reasons.PREEMPTED,
        reasons.PREEMPTING,
        reasons.TIMED_OUT,
        reasons.NOT_WAITING,
        reasons.GANG_SCHEDULING_OFF,
    ),
    ("Preempted", "True"): (reasons.PREEMPTED,),
    ("Preempted", "False"): (reasons.GANG_ADMITTED, reasons.SUSPENDED),
    ("Running", "True"): (reasons.CHIEF_RUNNING,),
    ("Running", "False"): (reasons.CHIEF_NOT_RUNNING,),
    ("Resizing", "True"): (reasons.CHILDREN_FOLLOW,),
    ("Resizing", "False"): (reasons.RESIZED, reasons.RESIZE_RECOMMENDED, reasons.NONE_RECOMMENDED),
    ("Restarting", "True"): (reasons.REPLICAS_RESTARTING,),
    ("Restarting", "False"): (reasons.NONE_RESTARTING,),
    ("Suspended", "True"): (reasons.SUSPENDED,),
    ("Suspended", "False"): (reasons.RESUMED,),
    ("ChangesReverted", "True"): (reasons.CHANGE_REVERTED,),
    ("ChangesReverted", "False"): (reasons.CHANGES_ACCEPTED,),
    ("Succeeded", "True"): (reasons.CHIEF_SUCCEEDED,),
    ("Failed", "True"): (
        reasons.REPLICA_FAILED,
        reasons.DEADLINE_EXCEEDED,
        reasons.TIMED_OUT,
        reasons.BACKOFF_LIMIT_EXCEEDED,
        reasons.CREATE_REFUSED,
        reasons.INVALID_SPEC,
    ),
}

# Those that only an elastic TrainJob has.
_OF_TRAINJOBS: Conditions = {("Running", "False"): (reasons.TOO_FEW_NODES,)}
TRAINJOB_CONDITIONS: Conditions = {
    (TYPES.get(condition, condition), status): (
        *(REASONS.get(reason, reason) for reason in possible),
        *_OF_TRAINJOBS.get((condition, status), ()),
    )
    for (condition, status), possible in TFJOB_CONDITIONS.items()
}
