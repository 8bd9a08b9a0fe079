"""The jobs of training-operator 1.9 as data: TFJob, PyTorchJob, MPIJob, XGBoostJob, JAXJob, PaddleJob.

The kinds differ in a table (`V1_KINDS`) and in the name of the field with the replicas, so that one type serves them
all. Only the fields that the controller uses are decoded; unknown ones are ignored, as training-operator ignores them.
Pod templates stay plain JSON. Absent fields stay absent: `defaults` has their meaning.

Source: kubeflow/trainer, branch release-1.9, pkg/apis/kubeflow.org/v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import msgspec

from tfjob_controller.api.common.cluster import ALWAYS
from tfjob_controller.api.common.policies import EXIT_CODE, NEVER, ON_FAILURE
from tfjob_controller.api.common.record import RecordedMeta
from tfjob_controller.api.decode import decoder_of
from tfjob_controller.kube.meta import Resource

API_GROUP = "kubeflow.org"
VERSION = "v1"

# Values of `managedBy`: the jobs that this controller runs, as no value does, and those of Kueue.
MANAGED_HERE = "kubeflow.org/training-operator"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"

# The policies of `restartPolicy`. ExitCode restarts a replica whose exit code is 128 or more.
RESTART_POLICIES = (ALWAYS, ON_FAILURE, NEVER, EXIT_CODE)
# The policy of TFJobs that requires the success of all workers. The default is the empty string.
ALL_WORKERS = "AllWorkers"
# `nprocPerNode` of a PyTorchJob that gives no number.
AUTO = "auto"

# The kinds.
TF_JOB, PYTORCH_JOB, MPI_JOB = "TFJob", "PyTorchJob", "MPIJob"
XGBOOST_JOB, JAX_JOB, PADDLE_JOB = "XGBoostJob", "JAXJob", "PaddleJob"

# Types of replicas.
CHIEF, MASTER, PS, WORKER, EVALUATOR = ("Chief", "Master", "PS", "Worker", "Evaluator")
LAUNCHER = "Launcher"

# The types of conditions.
CREATED, RUNNING, RESTARTING = "Created", "Running", "Restarting"
SUSPENDED, SUCCEEDED, FAILED = "Suspended", "Succeeded", "Failed"


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class V1ReplicaSpec(_Value, frozen=True):
    """The replicas of one type. An empty `restart_policy` is the default of the kind."""

    replicas: int | None = None
    template: Mapping[str, Any] = {}
    restart_policy: str = ""


class V1SchedulingPolicy(_Value, frozen=True):
    """The parameters of gang scheduling."""

    min_available: int | None = None
    queue: str = ""
    min_resources: Mapping[str, int | str] | None = None
    priority_class: str = ""
    schedule_timeout_seconds: int | None = None


class V1RunPolicy(_Value, frozen=True):
    """The rules of a job's life."""

    clean_pod_policy: str | None = None
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    scheduling_policy: V1SchedulingPolicy | None = None
    suspend: bool = False
    managed_by: str | None = None


class RendezvousOption(_Value, frozen=True):
    """One option of torchrun's rendezvous."""

    key: str = ""
    value: str = ""


class V1ElasticPolicy(_Value, frozen=True):
    """How a PyTorchJob changes its size. A PaddleJob has only some of the fields."""

    min_replicas: int | None = None
    max_replicas: int | None = None
    rdzv_backend: str | None = None
    rdzv_port: int | None = None
    rdzv_host: str | None = None
    rdzv_id: str | None = None
    rdzv_conf: tuple[RendezvousOption, ...] = ()
    standalone: bool | None = None
    n_proc_per_node: int | None = None
    max_restarts: int | None = None
    # Metrics of a HorizontalPodAutoscaler, as they are.
    metrics: tuple[Mapping[str, Any], ...] = ()


class V1Spec(_Value, frozen=True):
    """The desired state of a job of any kind. `replica_specs` has the name on the wire that the kind gives it."""

    replica_specs: Mapping[str, V1ReplicaSpec] = {}
    run_policy: V1RunPolicy = V1RunPolicy()
    # TFJob.
    success_policy: str = ""
    enable_dynamic_worker: bool = False
    # PyTorchJob.
    nproc_per_node: str | None = None
    # PyTorchJob and PaddleJob.
    elastic_policy: V1ElasticPolicy | None = None
    # MPIJob.
    slots_per_worker: int | None = None
    main_container: str = ""
    clean_pod_policy: str | None = None


class V1Condition(_Value, frozen=True):
    """A condition of a job. Times are RFC 3339."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_update_time: str | None = None
    last_transition_time: str | None = None


class V1ReplicaStatus(_Value, frozen=True):
    """The number of pods of one type in each state; `selector` is for the scale subresource."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    selector: str = ""


class V1Status(_Value, frozen=True):
    """The observed state of a job. The last condition is the newest one."""

    conditions: tuple[V1Condition, ...] = ()
    replica_statuses: Mapping[str, V1ReplicaStatus] = {}
    start_time: str | None = None
    completion_time: str | None = None
    last_reconcile_time: str | None = None


class V1Job(_Value, frozen=True):
    """A job of any kind. Decoded objects are of a subclass for each kind, in which `kind` has the name by default.

    `invalid` is not a field of the API: it is the reason why the object cannot be decoded, and the spec is then empty.
    """

    metadata: RecordedMeta
    spec: V1Spec = V1Spec()
    status: V1Status = V1Status()
    kind: str = ""
    invalid: str = msgspec.field(name="_invalid", default="")


@dataclass(frozen=True, slots=True)
class V1Kind:
    """What differs between the kinds.

    `types` has the replica types in their order, `container` the name of the training container, and `restart_policy`
    the default. A kind without a port has the port 0. The others are values of labels and metrics, and whether the kind
    has a scale subresource.
    """

    kind: str
    plural: str
    replicas_field: str
    types: tuple[str, ...]
    container: str
    port_name: str
    port: int
    restart_policy: str
    operator_name: str
    framework: str
    has_scale: bool


_KINDS = (
    V1Kind(
        kind=TF_JOB,
        plural="tfjobs",
        replicas_field="tfReplicaSpecs",
        types=(CHIEF, MASTER, PS, WORKER, EVALUATOR),
        container="tensorflow",
        port_name="tfjob-port",
        port=2222,
        restart_policy=NEVER,
        operator_name="tfjob-controller",
        framework="tensorflow",
        has_scale=False,
    ),
    V1Kind(
        kind=PYTORCH_JOB,
        plural="pytorchjobs",
        replicas_field="pytorchReplicaSpecs",
        types=(MASTER, WORKER),
        container="pytorch",
        port_name="pytorchjob-port",
        port=23456,
        restart_policy=ON_FAILURE,
        operator_name="pytorchjob-controller",
        framework="pytorch",
        has_scale=True,
    ),
    V1Kind(
        kind=MPI_JOB,
        plural="mpijobs",
        replicas_field="mpiReplicaSpecs",
        types=(LAUNCHER, WORKER),
        container="mpi",
        port_name="",
        port=0,
        restart_policy=NEVER,
        operator_name="mpijob-controller",
        framework="mpi",
        has_scale=False,
    ),
    V1Kind(
        kind=XGBOOST_JOB,
        plural="xgboostjobs",
        replicas_field="xgbReplicaSpecs",
        types=(MASTER, WORKER),
        container="xgboost",
        port_name="xgboostjob-port",
        port=9999,
        restart_policy=NEVER,
        operator_name="xgboostjob-controller",
        framework="xgboost",
        has_scale=False,
    ),
    V1Kind(
        kind=JAX_JOB,
        plural="jaxjobs",
        replicas_field="jaxReplicaSpecs",
        types=(WORKER,),
        container="jax",
        port_name="jaxjob-port",
        port=6666,
        restart_policy=NEVER,
        operator_name="jaxjob-controller",
        framework="jax",
        has_scale=True,
    ),
    V1Kind(
        kind=PADDLE_JOB,
        plural="paddlejobs",
        replicas_field="paddleReplicaSpecs",
        types=(MASTER, WORKER),
        container="paddle",
        port_name="master",
        port=36543,
        restart_policy=ON_FAILURE,
        operator_name="paddlejob-controller",
        framework="paddle",
        has_scale=True,
    ),
)


def _job_type(kind: V1Kind) -> type[V1Job]:
    """The type of the objects of a kind: it sets the names that the kind gives to fields on the wire."""
    replicas: Any = msgspec.field(name=kind.replicas_field, default_factory=dict)
    spec = _subclass(f"{kind.kind}Spec", V1Spec, [("replica_specs", dict[str, V1ReplicaSpec], replicas)])
    return cast("type[V1Job]", _subclass(kind.kind, V1Job, [("kind", str, kind.kind), ("spec", spec, spec())]))


def _subclass(name: str, base: type[msgspec.Struct], fields: list[tuple[str, Any, Any]]) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        name, fields, bases=(base,), module=__name__, frozen=True, rename="camel", omit_defaults=True
    )


# By kind.
V1_KINDS: Mapping[str, V1Kind] = MappingProxyType({kind.kind: kind for kind in _KINDS})
V1_RESOURCES: Mapping[str, Resource[V1Job]] = MappingProxyType(
    {
        kind.kind: Resource(
            API_GROUP,
            VERSION,
            kind.plural,
            kind.kind,
            decoder_of(_job_type(kind)),
            alternative=f"remove {kind.kind} from --kubeflow-v1-api",
        )
        for kind in _KINDS
    }
)
