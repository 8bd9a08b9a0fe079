"""The reasons of all conditions and events. The reference in docs/ is generated from this module.

Programs may rely on reasons, which never change; messages are for people.
"""

from __future__ import annotations

# Events that the reconciler emits for its writes.
SUCCESSFUL_CREATE = "SuccessfulCreate"
FAILED_CREATE = "FailedCreate"
SUCCESSFUL_DELETE = "SuccessfulDelete"

# Events that follow from the status. Those of a phase have its name as reason. Some are also reasons of conditions.
INVALID_SPEC = "InvalidSpec"
RESTARTED = "Restarted"
SUSPENDED = "Suspended"
RESUMED = "Resumed"
RESIZED = "Resized"
RESIZE_RECOMMENDED = "ResizeRecommended"
OVERRIDDEN = "AutoscalerOverridden"
PROGRESS_IGNORED = "ProgressIgnored"
CHECKPOINT_SAVED = "CheckpointSaved"
CHECKPOINT_FAILED = "CheckpointFailed"
CHECKPOINT_RESTORED = "CheckpointRestored"
# Also the reason of the condition ChangesReverted.
CHANGE_REVERTED = "ChangeReverted"

# Reasons of conditions.
JOB_CREATED = "JobCreated"
CHIEF_RUNNING = "ChiefRunning"
CHIEF_NOT_RUNNING = "ChiefNotRunning"
TOO_FEW_NODES = "TooFewNodes"
REPLICAS_RESTARTING = "ReplicasRestarting"
NONE_RESTARTING = "NoneRestarting"
CHILDREN_FOLLOW = "ChildrenFollow"
NONE_RECOMMENDED = "NoneRecommended"
CHIEF_SUCCEEDED = "ChiefSucceeded"
REPLICA_FAILED = "ReplicaFailed"
DEADLINE_EXCEEDED = "DeadlineExceeded"
BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
CREATE_REFUSED = "CreateRefused"
CHANGES_ACCEPTED = "ChangesAccepted"

# Reasons of the condition Scheduled. All but the first two are also events.
WAITING_FOR_SCHEDULER = "WaitingForScheduler"
NOT_WAITING = "NotWaiting"
GANG_ADMITTED = "GangAdmitted"
GANG_SCHEDULED = "GangScheduled"
WAITING_FOR_CAPACITY = "WaitingForCapacity"
EXCEEDS_CLUSTER_CAPACITY = "ExceedsClusterCapacity"
# Also the reason of the condition Preempted.
PREEMPTED = "Preempted"
PREEMPTING = "Preempting"
TIMED_OUT = "TimedOut"
GANG_SCHEDULING_OFF = "GangSchedulingOff"

DESCRIPTIONS: dict[str, str] = {
    SUCCESSFUL_CREATE: "Children were created: one event for all Jobs, Services, ConfigMaps and Gangs of a sync. "
    "The message has their numbers and at most ten names.",
    FAILED_CREATE: "The API server refused to create children, or another object has their name; the message "
    "names them. There is one event for each cause.",
    SUCCESSFUL_DELETE: "Children were deleted: removed workers, or Jobs that must be recreated. There is one event "
    "for all of a sync.",
    INVALID_SPEC: "The spec is invalid; the message names the field and the problem.",
    RESTARTED: "Replicas ended with an error, or were lost, and are restarted.",
    SUSPENDED: "spec.suspend is true: all pods are stopped, Services and child Jobs stay.",
    RESUMED: "spec.suspend is false again.",
    RESIZED: "The number of workers (or nodes) was changed; the message has the author or the reason.",
    RESIZE_RECOMMENDED: "The gang scheduler requests another number of workers, which is only reported "
    "(--autoscaling=recommend).",
    OVERRIDDEN: "Another writer overrode the autoscaler's number of workers: the last write wins.",
    PROGRESS_IGNORED: "A worker's report of its steps is ignored; the message has the reason. Only the first "
    "is reported.",
    CHECKPOINT_SAVED: "A checkpoint is complete in the storage. If several were saved within five seconds, "
    "the message names the last one.",
    CHECKPOINT_FAILED: "A checkpoint is not saved; the message has the reason. Training continues, and saving "
    "is retried.",
    CHECKPOINT_RESTORED: "Pods were started, and the program continues from a checkpoint, or starts from the beginning "
    "because there is none. The message has the number of repeated steps. It is a warning if a corrupt checkpoint "
    "was skipped.",
    CHANGE_REVERTED: "Another client keeps reverting changes of the controller to a child, such as a queue that "
    "suspends child Jobs. The message names the child, the field and, if it is known, the client.",
    CHANGES_ACCEPTED: "No change of a child is reverted any more.",
    CHILDREN_FOLLOW: "Workers (or nodes) are added or removed: some do not have their Job yet, or still have it.",
    NONE_RECOMMENDED: "The gang scheduler no longer requests another number of workers.",
    JOB_CREATED: "The controller has processed the job.",
    CHIEF_RUNNING: "The chief's training container runs; or it has succeeded, and others run: a TrainJob's other "
    "nodes, or its exporter.",
    CHIEF_NOT_RUNNING: "The chief's training container, or a later step, does not run now.",
    TOO_FEW_NODES: "For an elastic TrainJob: fewer nodes than elasticPolicy.minNodes run, and they wait for others.",
    REPLICAS_RESTARTING: "Some replicas have ended and wait to run again.",
    NONE_RESTARTING: "All replicas that were restarted run again.",
    CHIEF_SUCCEEDED: "The chief ended with exit code 0: the job succeeded.",
    REPLICA_FAILED: "The chief (any replica under failurePolicy AnyReplica) ended with a permanent error.",
    DEADLINE_EXCEEDED: "The job was not done after spec.activeDeadlineSeconds.",
    BACKOFF_LIMIT_EXCEEDED: "There were more restarts of replicas than spec.backoffLimit (in a TrainJob: maxRestarts), "
    "or more attempts of its initializer or exporter than allowed.",
    WAITING_FOR_SCHEDULER: "The gang scheduler has not processed the Gang of the job yet.",
    NOT_WAITING: "The job is suspended, so it does not wait for capacity.",
    GANG_ADMITTED: "There is capacity for all replicas, or for spec.gang.minWorkers: they are created.",
    GANG_SCHEDULED: "With --gang-backend: its scheduler has assigned nodes to all replicas, or to the minimum number.",
    WAITING_FOR_CAPACITY: "There is no capacity for all replicas yet, and none is created; the message names "
    "the missing resources.",
    EXCEEDS_CLUSTER_CAPACITY: "Not even an empty cluster has capacity for all replicas; new nodes may change that.",
    PREEMPTED: "A gang of higher priority gets the capacity of all replicas, which are deleted; the message names it. "
    "Nothing counts as a restart, and the job waits for capacity again.",
    PREEMPTING: "Gangs of lower priority are preempted for the job, which waits until their pods are deleted.",
    TIMED_OUT: "There was no capacity for all replicas within spec.gang.timeoutSeconds; onTimeout "
    "determines the action.",
    GANG_SCHEDULING_OFF: "spec.gang.enabled is true, but the controller runs with --gang-scheduling=off.",
    CREATE_REFUSED: "A child can never be created; the message has the API server's error.",
}
