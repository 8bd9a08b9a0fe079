"""The plan of a job: roles, and a child Job and a Service for each of their replicas.

Theory of operation. Each kind of job is compiled into a `Plan` once per generation, by `plan` in its folder of `kinds`.
The rest of `jobs` knows only plans, the observed state and statuses: the children are built from the plan, the
difference between plan and cluster gives the writes, and the states of the plan's replicas give the next status. All
of it is pure: no I/O, no clock but arguments, and nothing is mutated. Any thread may call it, and results may be cached
by `(uid, generation)`.

A plan has one part per concern: whose children they are (`identity`), the rules of the run (`policy`), `replicas`,
`scheduling`, `scaling`, what pods mount (`mounts`), and how completed steps are counted (`progress`).

A plan may have steps, each of which is a plan with a part of the replicas. A step begins when the one before it has
succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from tfjob_controller.api.common.policies import BY_RESTART
from tfjob_controller.api.gang import ON_TIMEOUT_SUSPEND
from tfjob_controller.jobs.frameworks.environment import tf_config_environment
from tfjob_controller.jobs.plan.gangterms import OFF, GangTerms, PodGroupTerms
from tfjob_controller.jobs.podtemplate.checkpoint import SAVER
from tfjob_controller.kube.meta import Object, OwnerReference, Resource


class UnplannableError(Exception):
    """The job refers to a missing object, or cannot run with the object that it refers to. `message` is one sentence.

    Raised when a plan or the environment of a child is built. `seconds_left` is how long the job should wait for the
    object; 0 if waiting cannot help.
    """

    def __init__(self, message: str, seconds_left: float = 0.0) -> None:
        super().__init__(message)
        self.seconds_left = seconds_left


@dataclass(frozen=True, slots=True)
class Role:
    """A set of replicas with the same template. `name` is in lower case (`ps`), `replica_type` as in the API (`PS`).

    `serves` is True for roles that run until they are stopped: a replica that exits with success is started again.
    `template` is the user's PodTemplateSpec completed with everything that is the same for all replicas. It is shared
    and never changed; a chief of this role has `chief_template` instead, if there is one. `container` is the one whose
    exit code counts. A role with port 0 has no Service.
    """

    name: str
    replica_type: str
    replicas: int
    port: int
    template: Mapping[str, Any]
    container: str
    serves: bool = False
    port_name: str = "tf-port"
    # Training cannot continue without a replica: a retryable failure of one restarts all.
    restarts_together: bool = False
    # Any error of the program is retryable, whatever its exit code. For roles that restart together.
    retries_any_error: bool = False
    # The Indexed Job that runs all replicas, and their Service. Empty if each replica has its own.
    job_name: str = ""
    service_name: str = ""
    # The Service selects the pods of all roles.
    shares_service: bool = False
    # The Job of a single replica has a completion index as well, which gives its pod a host name.
    is_indexed: bool = False
    # Of the Jobs alone, beside the controller's own labels.
    job_labels: Mapping[str, str] = field(default_factory=dict)
    job_annotations: Mapping[str, str] = field(default_factory=dict)
    # With at least this number of replicas the job continues, and their number may change. 0: all are needed.
    min_replicas: int = 0
    # The chief's template, if it differs from that of the other replicas.
    chief_template: Mapping[str, Any] | None = None
    # With `Plan.carrier`, when a replica that has ended runs again (`policies.py`). Otherwise empty: Jobs have the
    # policy of this project.
    restart_policy: str = ""
    # The init containers of such pods whose failure is never one of the program.
    retried_containers: frozenset[str] = frozenset()
    # The phases in which such a pod has failed for good, whatever the policy: Failed, and Running if it is deleted.
    final_phases: frozenset[str] = frozenset()

    @property
    def is_elastic(self) -> bool:
        """A replica other than the first can leave, come and be replaced by itself."""
        return self.min_replicas > 0


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica. `id` is shown to users (`worker-3`); `name` is that of its child Job and Service, or its host name.

    `decides` reports whether its permanent error fails the job (the chief; every replica under `failurePolicy:
    AnyReplica`), `restarts_in_place` whether the kubelet restarts its containers after errors that may be retried.
    """

    role: Role
    index: int
    id: str
    name: str
    is_chief: bool = False
    decides: bool = False
    restarts_in_place: bool = False

    @property
    def job_name(self) -> str:
        """The name of the child Job that runs the replica."""
        return self.role.job_name or self.name

    @property
    def template(self) -> Mapping[str, Any]:
        """The template of its pods, complete except for what differs between replicas."""
        chief_template = self.role.chief_template if self.is_chief else None
        return self.role.template if chief_template is None else chief_template

    @property
    def serves(self) -> bool:
        """Reports whether the replica runs until the job ends, so that its success does not count."""
        return self.role.serves and not self.is_chief

    @property
    def saves_checkpoints(self) -> bool:
        containers = (self.template.get("spec") or {}).get("initContainers") or ()
        return any(
            container.get("name") == SAVER and container.get("restartPolicy") == "Always" for container in containers
        )


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """What the names, labels and owner references of children are built from."""

    namespace: str
    job_name: str
    runtime_id: str
    owner: OwnerReference
    # The labels of all children, by which they are watched and known again: caches keep all of these.
    labels: Mapping[str, str]
    # What the user or the API of the job's kind wants on all children and their pods.
    added_labels: Mapping[str, str] = field(default_factory=dict)
    added_annotations: Mapping[str, str] = field(default_factory=dict)

    def metadata_of(
        self, name: str, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Returns the metadata of a child, ready for JSON."""
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": {**self.added_labels, **labels},
            **({"annotations": dict(annotations)} if annotations else {}),
            "ownerReferences": [msgspec.to_builtins(self.owner)],
        }


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """The rules that apply to a job as a whole. Counts and seconds are None if there is no limit."""

    clean_pod_policy: str
    suspend: bool = False
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    # Reports whether the job fails as soon as there are as many restarts as the limit, or one if it is 0.
    fails_at_limit: bool = False
    # Reports whether the rules are training-operator's where this project's differ on purpose: only the restarts of
    # pods that run count for the limit, successes only as long as their pods exist, and None keeps all pods.
    is_strict: bool = False
    # Reports whether `suspend` is True because the scheduler of the gang permits no pods now.
    is_held: bool = False

    @property
    def is_suspended_by_user(self) -> bool:
        return self.suspend and not self.is_held


@dataclass(frozen=True, slots=True)
class PlannedReplicas:
    """The replicas that a job should have."""

    # In the job's order, including those with 0 replicas.
    roles: tuple[Role, ...]
    # The chief first, then role by role, by index.
    all: tuple[Replica, ...]
    by_name: Mapping[str, Replica]
    chief: Replica
    # Replicas whose success completes the job. If there are none, the chief's success does.
    needed: tuple[Replica, ...] = ()
    # Reports whether one of those suffices.
    needs_one: bool = False
    # Reports whether no success completes the job, because it has no replica that decides.
    never_succeeds: bool = False
    # With resize InPlace: all replicas that the job may ever have, in the same order; `all` has the current ones.
    candidates: tuple[Replica, ...] = ()

    @property
    def restarts_together(self) -> bool:
        return any(role.restarts_together for role in self.roles)

    @property
    def is_elastic(self) -> bool:
        return any(role.is_elastic for role in self.roles)


@dataclass(frozen=True, slots=True)
class PodScheduling:
    """Who assigns nodes to the pods. At most one of `gang` and `pod_group` is not None."""

    scheduler_name: str = ""
    priority_class_name: str = ""
    # The gang, if this project's gang scheduler runs it.
    gang: GangTerms | None = None
    # The gang, if another scheduler runs it.
    pod_group: PodGroupTerms | None = None
    # Reports whether the job requests gang scheduling although the controller's flags turn it off.
    is_gang_refused: bool = False

    @property
    def requests_gang(self) -> bool:
        return self.is_gang_refused or self.gang is not None or self.pod_group is not None

    @property
    def suspends_on_timeout(self) -> bool:
        terms = self.pod_group.terms if self.pod_group is not None else self.gang
        return terms is not None and terms.on_timeout == ON_TIMEOUT_SUSPEND


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """How the number of workers changes, or that of the nodes of a TrainJob."""

    # The role whose number changes; empty if there is none.
    role: str = ""
    # How a resize is carried out; empty for a job without autoscaling.
    resize: str = ""
    # The minimum and maximum of workers; None without autoscaling.
    worker_bounds: tuple[int, int] | None = None
    # What happens with the gang scheduler's resize requests: see `plan.gangterms.GangPolicy`.
    autoscaling: str = OFF
    # The field that has the number of workers, for messages.
    workers_field: str = ""
    # The metrics by which a HorizontalPodAutoscaler resizes the job; empty if the job has none.
    metrics: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class GeneratedSecret:
    """A Secret whose data is generated once and never read again. `type` is its type in Kubernetes."""

    name: str
    type: str
    make: Callable[[], Mapping[str, bytes]]


@dataclass(frozen=True, slots=True)
class NewClaim:
    """A PersistentVolumeClaim that is created with the first pod that may mount it, and deleted with the job."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodMounts:
    """What pods mount, and which of their containers only transfer data."""

    # The name of the ConfigMap and its content. An empty name: none is needed.
    config_map: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    # Created together with the first pod.
    secret: GeneratedSecret | None = None
    claims: tuple[NewClaim, ...] = ()
    # The names of the containers that fetch or upload data.
    data_containers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PodCarrier:
    """How the replicas of a job are carried that have a pod each, and no Job: see `state.barepods`.

    `pod` returns the template of a replica's pod, `service` the spec of its Service, whose labels are its selector.
    """

    pod: Callable[[Replica], Mapping[str, Any]]
    service: Callable[[Replica], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """An object of the job that exists before its first pod is created.

    `content` returns its fields beside the metadata, given the names of the pods that run. If it `is_updated`, an
    object with another content is patched. `labels` come beside those of all children. One that `refers` to others is
    created once these exist.
    """

    resource: Resource[Object]
    name: str
    content: Callable[[Collection[str]], Mapping[str, Any]]
    labels: Mapping[str, str] = field(default_factory=dict)
    is_updated: bool = False
    refers: bool = False


@dataclass(frozen=True, slots=True)
class StepShares:
    """Steps to be done: by all workers from the beginning, and by each one that starts now, by its index."""

    total: int
    by_index: Mapping[int, int]


class StepPattern(Protocol):
    """Finds the number of steps in a text."""

    def last_match(self, text: str) -> str | None:
        """Returns the match of the last line that matches."""


@dataclass(frozen=True, slots=True)
class StepCounting:
    """How the steps that workers complete are counted: see `scaling.progress`."""

    # For the log of a worker. None: an annotation of its pod has the number.
    pattern: StepPattern | None = None
    total: int | None = None
    # For a job with a total.
    shares: StepShares | None = None

    @property
    def is_enabled(self) -> bool:
        return self.total is not None or self.pattern is not None


@dataclass(frozen=True, slots=True)
class Plan:
    """All children that a job should have, and the rules that apply to them."""

    identity: JobIdentity
    policy: RunPolicy
    replicas: PlannedReplicas
    # The variables of a replica's training container, which come after the user's.
    environment: Callable[[Replica], Mapping[str, str]]
    scheduling: PodScheduling = field(default_factory=PodScheduling)
    scaling: ScalingPolicy = field(default_factory=ScalingPolicy)
    mounts: PodMounts = field(default_factory=PodMounts)
    progress: StepCounting = field(default_factory=StepCounting)
    # Children of another restart attempt are stale.
    restart_attempt: int = 0
    # Parts of this plan that run one after another. Empty: the plan is one step.
    steps: tuple[Plan, ...] = ()
    # None if Jobs carry the replicas.
    carrier: PodCarrier | None = None
    objects: tuple[PlannedObject, ...] = ()

    @property
    def has_restart_attempts(self) -> bool:
        return self.replicas.restarts_together or self.scaling.resize == BY_RESTART

    @property
    def scaled_role(self) -> Role | None:
        """The role whose number of replicas changes."""
        return next((role for role in self.replicas.roles if role.name == self.scaling.role), None)

    @property
    def saving_replica(self) -> Replica | None:
        """The replica whose checkpoints the status shows: the first one that saves any; None if none does."""
        return next((replica for replica in self.replicas.all if replica.saves_checkpoints), None)


def environment_of(replicas: Iterable[Replica]) -> Callable[[Replica], Mapping[str, str]]:
    """Returns the `TF_CONFIG` of each replica of a cluster that consists of these replicas."""
    cluster: dict[str, list[str]] = {}
    for replica in sorted(replicas, key=lambda replica: replica.index):
        cluster.setdefault(replica.role.name, []).append(f"{replica.name}:{replica.role.port}")
    variables = tf_config_environment(cluster)
    return lambda replica: variables(replica.role.name, str(replica.index))
