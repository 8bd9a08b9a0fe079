"""Every reason of a condition and of an event, in one place. docs/reference is generated from this.

Machine words are CamelCase and never change; sentences are for people.
"""

from __future__ import annotations

# Events of type Normal or Warning; the engine emits the first four itself.
SUCCESSFUL_CREATE = "SuccessfulCreate"
FAILED_CREATE = "FailedCreate"
SUCCESSFUL_DELETE = "SuccessfulDelete"
FOREIGN_OBJECT = "ForeignObject"
INVALID_SPEC = "InvalidSpec"
PHASE_CHANGED = "PhaseChanged"
RESTARTED = "Restarted"
SUSPENDED = "Suspended"
RESUMED = "Resumed"

# Reasons of conditions.
JOB_CREATED = "JobCreated"
CHIEF_RUNNING = "ChiefRunning"
CHIEF_NOT_RUNNING = "ChiefNotRunning"
REPLICA_RESTARTING = "ReplicaRestarting"
ALL_REPLICAS_UP = "AllReplicasUp"
JOB_FINISHED = "JobFinished"
CHIEF_SUCCEEDED = "ChiefSucceeded"
REPLICA_FAILED = "ReplicaFailed"
DEADLINE_EXCEEDED = "DeadlineExceeded"
BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
CREATE_REFUSED = "CreateRefused"
