"""The reasons of TrainJobs that have Kubeflow Trainer's names; `jobs.reasons` has the others.

`DESCRIPTIONS` is for the generated reference.
"""

from __future__ import annotations

JOBS_CREATION_SUCCEEDED = "JobsCreationSucceeded"
JOBS_BUILD_FAILED = "JobsBuildFailed"
ALL_JOBS_COMPLETED = "AllJobsCompleted"

DESCRIPTIONS: dict[str, str] = {
    JOBS_CREATION_SUCCEEDED: "For a TrainJob: the controller has processed it.",
    JOBS_BUILD_FAILED: "For a TrainJob: the spec is invalid; the message names the field and the problem.",
    ALL_JOBS_COMPLETED: "For a TrainJob: all nodes (with MPI the launcher), and then its exporter, succeeded.",
}
