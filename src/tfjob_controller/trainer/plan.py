"""What a job is made of: roles, and for each of their replicas one child Job and one Service.

Theory of operation. A kind (TFJob now) is compiled into a `Plan`, once per generation. Everything else in this package
knows only plans, what is observed in the cluster, and a status: children are built from a plan, the difference between
plan and cluster gives the writes, and the states of the plan's replicas give the next status. All of it is pure: no
I/O, no clock but arguments, nothing is mutated, so any thread may call it and results may be cached by
`(uid, generation)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfjob_controller.api.accelerators import apply_accelerators
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.defaults import (
    bounds_of,
    chief_of,
    clean_pod_policy_of,
    failure_policy_of,
    port_of,
    replicas_of,
    resize_of,
    restart_policy_of,
    total_steps_of,
)
from tfjob_controller.api.steps import pattern_of
from tfjob_controller.api.tfjob import FAIL_ON_ANY, IN_PLACE, NEVER, PS, TFJOBS, WORKER, ReplicaSpec, TFJob, TFJobSpec
from tfjob_controller.api.validation import has_container
from tfjob_controller.kube.meta import OwnerReference
from tfjob_controller.trainer.cluster import tf_config_environment
from tfjob_controller.trainer.gangterms import NO_GANGS, OFF, GangPolicy, GangTerms, terms_of
from tfjob_controller.trainer.names import child_name, config_map_name, replica_id
from tfjob_controller.trainer.psserver import default_server_template


@dataclass(frozen=True, slots=True)
class Role:
    """A set of like replicas. `name` is in lower case (`ps`), `replica_type` is what the API calls it (`PS`).

    `serves` is True for roles that run until they are stopped: one that ends with success is started again.
    `template` is the user's PodTemplateSpec with the default server and accelerators filled in; shared, never mutated.
    """

    name: str
    replica_type: str
    replicas: int
    port: int
    template: Mapping[str, Any]
    serves: bool = False


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica: `id` is for people (`worker-3`), `name` that of its child Job and Service.

    `decides`: its permanent error is the job's (the chief; every replica under `failurePolicy: AnyReplica`).
    `fails_itself`: its child Job has a podFailurePolicy, so that a permanent error ends it without our help.
    """

    role: Role
    index: int
    id: str
    name: str
    is_chief: bool = False
    decides: bool = False
    fails_itself: bool = False

    @property
    def serves(self) -> bool:
        """Its success does not count: it runs until the job ends. The chief's always counts."""
        return self.role.serves and not self.is_chief


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules that a job as a whole runs by. Counts and seconds are None where there is no limit."""

    clean_pod_policy: str
    suspend: bool = False
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Shares:
    """Steps to be done: by all workers from the beginning, and by each one that starts now, by its index."""

    total: int
    by_index: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """All children that a job should have, and the rules that they run by."""

    namespace: str
    job_name: str
    runtime_id: str
    owner: OwnerReference
    policy: Policy
    # As the job lists them, those with 0 replicas too.
    roles: tuple[Role, ...]
    # The chief first, then role by role, by index.
    replicas: tuple[Replica, ...]
    by_name: Mapping[str, Replica]
    chief: Replica
    # Variables that the training container of a replica gets, after the user's own.
    environment: Callable[[Replica], Mapping[str, str]]
    # Name of the ConfigMap with the default server's script; empty: none is needed.
    config_map: str = ""
    scheduler_name: str = ""
    priority_class_name: str = ""
    gang: GangTerms | None = None
    # The job asks to be a gang, and the controller's flags say that none is.
    gang_refused: bool = False
    # How the number of workers changes; empty for a job without autoscaling.
    resize: str = ""
    # With resize InPlace: all replicas that there may ever be, in the same order. Those that there are: see `elastic`.
    candidates: tuple[Replica, ...] = ()
    # With resize Restart: children of another generation are stopped.
    generation: int = 0
    # How a worker's log says how many steps it has done; None: an annotation of its pod does.
    pattern: re.Pattern[str] | None = None
    total_steps: int | None = None
    # Of a job with total_steps: see `progress`.
    shares: Shares | None = None
    # Bounds of the workers; None without autoscaling.
    bounds: tuple[int, int] | None = None
    # What is done about the gang scheduler's wishes: see `gangterms.GangPolicy`.
    autoscaling: str = OFF

    @property
    def counts_steps(self) -> bool:
        return self.total_steps is not None or self.pattern is not None


def build_plan(
    job: TFJob, config: ControllerConfig, *, restart_rules: bool = False, gangs: GangPolicy = NO_GANGS
) -> Plan:
    """Compile a *valid* TFJob that has its RuntimeId (validation is the caller's). Cacheable by (uid, generation).

    `restart_rules`: the server knows container-level restart rules (Kubernetes 1.35 and later).
    """
    spec = job.spec
    roles = tuple(_role(spec, entry, config) for entry in spec.replica_specs)
    every = tuple(sorted(_replicas(job, roles, restart_rules), key=lambda replica: not replica.is_chief))
    replicas = tuple(each for each in every if each.index < each.role.replicas)
    return Plan(
        namespace=job.metadata.namespace,
        job_name=job.metadata.name,
        runtime_id=spec.runtime_id,
        owner=owner_of(job),
        policy=_policy(spec),
        roles=roles,
        replicas=replicas,
        by_name={replica.name: replica for replica in replicas},
        chief=replicas[0],
        environment=environment_of(every),
        config_map=config_map_name(spec.runtime_id) if any(map(_uses_default_server, spec.replica_specs)) else "",
        scheduler_name=spec.scheduler_name,
        priority_class_name=spec.priority_class_name,
        gang=terms_of(job.metadata.name, spec, gangs, {role.name: (role.replicas, role.template) for role in roles}),
        gang_refused=gangs.refuses(spec),
        resize=resize_of(spec),
        candidates=every if resize_of(spec) == IN_PLACE else (),
        pattern=pattern_of(spec),
        total_steps=total_steps_of(spec),
        bounds=bounds_of(spec),
        autoscaling=gangs.autoscaling,
    )


def owner_of(job: TFJob) -> OwnerReference:
    """The reference that every child carries: the garbage collector deletes children with their job."""
    return OwnerReference(
        api_version=TFJOBS.api_version,
        kind=TFJOBS.kind,
        name=job.metadata.name,
        uid=job.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def _role(spec: TFJobSpec, entry: ReplicaSpec, config: ControllerConfig) -> Role:
    template: Mapping[str, Any] = entry.template or {}
    if _uses_default_server(entry):
        image = spec.tf_image or config.tf_image
        template = default_server_template(template, image, config_map_name(spec.runtime_id))
    return Role(
        name=entry.tf_replica_type.lower(),
        replica_type=entry.tf_replica_type,
        replicas=replicas_of(spec, entry.tf_replica_type),
        port=port_of(entry),
        template=apply_accelerators(template, config.accelerators),
        serves=entry.tf_replica_type == PS,
    )


def _uses_default_server(entry: ReplicaSpec) -> bool:
    return entry.tf_replica_type == PS and not has_container(entry.template)


def _replicas(job: TFJob, roles: tuple[Role, ...], restart_rules: bool) -> Iterator[Replica]:
    chief = chief_of(job.spec)
    any_decides = failure_policy_of(job.spec) == FAIL_ON_ANY
    for role in roles:
        can_fail_itself = restart_rules or restart_policy_of(role.template) == NEVER
        for index in range(_most_of(job.spec, role)):
            is_chief = role.replica_type == chief.replica_name and index == chief.replica_index
            decides = is_chief or any_decides
            yield Replica(
                role,
                index,
                id=replica_id(role.name, index),
                name=child_name(job.metadata.name, role.name, job.spec.runtime_id, index),
                is_chief=is_chief,
                decides=decides,
                fails_itself=decides and can_fail_itself,
            )


def _most_of(spec: TFJobSpec, role: Role) -> int:
    """How many of a role there may ever be: workers that come and go are known to all from the start."""
    if role.replica_type != WORKER or spec.autoscaling is None or resize_of(spec) != IN_PLACE:
        return role.replicas
    return max(role.replicas, spec.autoscaling.max_workers)


def environment_of(replicas: Iterable[Replica]) -> Callable[[Replica], Mapping[str, str]]:
    """What each replica's training container is told of these."""
    cluster: dict[str, list[str]] = {}
    for replica in sorted(replicas, key=lambda replica: replica.index):
        cluster.setdefault(replica.role.name, []).append(f"{replica.name}:{replica.role.port}")
    return tf_config_environment(cluster)


def _policy(spec: TFJobSpec) -> Policy:
    return Policy(
        clean_pod_policy=clean_pod_policy_of(spec),
        suspend=spec.suspend,
        active_deadline_seconds=spec.active_deadline_seconds,
        backoff_limit=spec.backoff_limit,
    )
