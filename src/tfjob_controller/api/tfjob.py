"""TFJob `kubeflow.org/v1alpha1` as data. Wire names are upstream's; see docs/reference for what each field means.

A TFJob that does not fit these types (an old CRD without a schema lets anything in) must not stop a cache that holds a
thousand others: `decode_tfjob` never fails on one object, it says in `invalid` what was wrong.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tfjob_controller.kube.meta import ObjectMeta, Resource

TFJOBS = Resource("kubeflow.org", "v1alpha1", "tfjobs", "TFJob")

MASTER = "MASTER"
WORKER = "WORKER"
PS = "PS"
REPLICA_TYPES = (MASTER, WORKER, PS)

DEFAULT_PORT = 2222
# The container whose exit code counts.
CONTAINER_NAME = "tensorflow"


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class ReplicaSpec(_Value, frozen=True):
    tf_replica_type: str = MASTER
    replicas: int | None = None
    tf_port: int | None = None
    template: dict[str, Any] | None = None


class Chief(_Value, frozen=True):
    replica_name: str = MASTER
    replica_index: int = 0


class TerminationPolicy(_Value, frozen=True):
    chief: Chief | None = None


class TFJobSpec(_Value, frozen=True):
    runtime_id: str = msgspec.field(name="RuntimeId", default="")
    replica_specs: tuple[ReplicaSpec, ...] = ()
    # The scale subresource writes here; it overrides the WORKER entry's replicas.
    worker_replicas: int | None = None
    tf_image: str = ""
    termination_policy: TerminationPolicy | None = None
    scheduler_name: str = ""
    clean_pod_policy: str = ""
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False
    failure_policy: str = ""
    priority_class_name: str = ""


class TFJobCondition(_Value, frozen=True, omit_defaults=False):
    """A standard condition (metav1.Condition)."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str
    observed_generation: int = 0


class ReplicaStatus(_Value, frozen=True):
    """`ReplicasStates` counts the indexes of one replica type by their state, under upstream's capital R."""

    tf_replica_type: str = msgspec.field(name="tf_replica_type", default="")
    state: str = ""
    replicas_states: dict[str, int] = msgspec.field(name="ReplicasStates", default_factory=dict)


class TFJobStatus(_Value, frozen=True):
    """What the controller says of a job.

    `restart_counts` maps the UID of a pod or child Job to the restarts seen of it, so that `restarts` stays right after
    pods are gone; `ready` feeds the printer columns (`"1/1"` by role).
    """

    phase: str = ""
    state: str = ""
    reason: str = ""
    replica_statuses: tuple[ReplicaStatus, ...] = ()
    control_paused: bool = False
    conditions: tuple[TFJobCondition, ...] = ()
    observed_generation: int = 0
    start_time: str | None = None
    completion_time: str | None = None
    restarts: int = 0
    restart_counts: dict[str, int] = {}
    # Replica ids (`worker-3`), sorted.
    succeeded_indexes: tuple[str, ...] = ()
    worker_replicas: int = 0
    worker_selector: str = ""
    ready: dict[str, str] = {}


class TFJob(_Value, frozen=True):
    """One job. `invalid` is not on the wire: why the object could not be read, naming the field; then spec is empty."""

    metadata: ObjectMeta
    spec: TFJobSpec = TFJobSpec()
    status: TFJobStatus = TFJobStatus()
    invalid: str = msgspec.field(name="_invalid", default="")
