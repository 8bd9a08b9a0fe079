"""The reasons that TrainJobs of both APIs name as Kubeflow Trainer does, beside those of `jobs.reasons`."""

from __future__ import annotations

JOBS_CREATION_SUCCEEDED = "JobsCreationSucceeded"
JOBS_BUILD_FAILED = "JobsBuildFailed"
ALL_JOBS_COMPLETED = "AllJobsCompleted"

DESCRIPTIONS: dict[str, str] = {
    JOBS_CREATION_SUCCEEDED: "For a TrainJob: the controller has processed it.",
    JOBS_BUILD_FAILED: "For a TrainJob: the spec is invalid; the message names the field and the problem.",
    ALL_JOBS_COMPLETED: "For a TrainJob: all nodes (with MPI the launcher), and then its exporter, succeeded.",
}
