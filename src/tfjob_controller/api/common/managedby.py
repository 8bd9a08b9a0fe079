"""The field `managedBy` of TFJobs and TrainJobs, which hands a job over to another controller.

The field and its rules are those of a Job (KEP-4368): a controller ignores the jobs that name another one, and the
value never changes.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from tfjob_controller.api.common.schema import A_PREFIXED_NAME, describe

# The value of a job that this controller runs; the empty string means the same.
MANAGED_HERE = "kubeflow.org/tfjob-controller"

ManagedBy: TypeAlias = Annotated[
    str,
    describe(
        "Another controller that runs this job, such as kueue.x-k8s.io/multikueue; this controller then ignores "
        "the job. It cannot change. Default: this controller.",
        **A_PREFIXED_NAME,
    ),
]

MANAGED_BY_FIXED = "managedBy cannot change: delete the job and create it again"


def is_managed_here(managed_by: str) -> bool:
    """False if the value names another controller."""
    return managed_by in ("", MANAGED_HERE)
