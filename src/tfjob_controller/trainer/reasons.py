"""Every reason of a condition and of an event, in one place; the reference in docs/ is generated from this.

Machine words are CamelCase and never change; sentences are for people.
"""

from __future__ import annotations

# Events that the engine emits for its writes.
SUCCESSFUL_CREATE = "SuccessfulCreate"
FAILED_CREATE = "FailedCreate"
SUCCESSFUL_DELETE = "SuccessfulDelete"

# Events that follow from the status; those of a phase have its name as reason. Some are conditions' reasons too.
INVALID_SPEC = "InvalidSpec"
RESTARTED = "Restarted"
SUSPENDED = "Suspended"
RESUMED = "Resumed"

# Reasons of conditions.
JOB_CREATED = "JobCreated"
CHIEF_RUNNING = "ChiefRunning"
CHIEF_NOT_RUNNING = "ChiefNotRunning"
REPLICAS_RESTARTING = "ReplicasRestarting"
NONE_RESTARTING = "NoneRestarting"
CHIEF_SUCCEEDED = "ChiefSucceeded"
REPLICA_FAILED = "ReplicaFailed"
DEADLINE_EXCEEDED = "DeadlineExceeded"
BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
CREATE_REFUSED = "CreateRefused"

DESCRIPTIONS: dict[str, str] = {
    SUCCESSFUL_CREATE: "A child Job, Service or ConfigMap was created.",
    FAILED_CREATE: "The API server refused to create a child, or something else has its name; the message says which.",
    SUCCESSFUL_DELETE: "A child was deleted: a worker too many, or a Job that must be made anew.",
    INVALID_SPEC: "The job cannot be run as it is; the message says which field and why.",
    RESTARTED: "Replicas ended with an error, or were lost, and are started again.",
    SUSPENDED: "spec.suspend is true: all pods are stopped, Services and child Jobs stay.",
    RESUMED: "spec.suspend is false again.",
    JOB_CREATED: "The controller has seen the job.",
    CHIEF_RUNNING: "The chief's training container runs.",
    CHIEF_NOT_RUNNING: "The chief's training container does not run at the moment.",
    REPLICAS_RESTARTING: "Some replicas have ended and wait to run again.",
    NONE_RESTARTING: "All replicas that were restarted run again.",
    CHIEF_SUCCEEDED: "The chief ended with exit code 0: the job succeeded.",
    REPLICA_FAILED: "The chief (any replica under failurePolicy AnyReplica) ended with a permanent error.",
    DEADLINE_EXCEEDED: "The job was not done after spec.activeDeadlineSeconds.",
    BACKOFF_LIMIT_EXCEEDED: "There were more restarts of replicas than spec.backoffLimit.",
    CREATE_REFUSED: "A child can never be created; the message has the API server's words.",
}
