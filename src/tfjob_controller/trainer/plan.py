"""What a job is made of: roles, and for each of their replicas one child Job and one Service.

Theory of operation. A kind (TFJob now) is compiled into a `Plan`, once per generation. Everything else in this package
knows only plans, what is observed in the cluster, and a status: children are built from a plan, the difference between
plan and cluster gives the writes, and the states of the plan's replicas give the next status. All of it is pure: no
I/O, no clock but arguments, nothing is mutated, so any thread may call it and results may be cached by
`(uid, generation)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tfjob_controller.api.tfjob import TFJob
from tfjob_controller.kube.meta import OwnerReference


class HostVolume(Protocol):
    """One volume that an accelerator needs."""

    @property
    def name(self) -> str: ...
    @property
    def host_path(self) -> str: ...
    @property
    def mount_path(self) -> str: ...


class EnvVar(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str: ...


class Accelerator(Protocol):
    """What a container that asks for a certain resource gets."""

    @property
    def volumes(self) -> Sequence[HostVolume]: ...
    @property
    def env_vars(self) -> Sequence[EnvVar]: ...


class PlanConfig(Protocol):
    """The part of the controller's configuration file that plans read."""

    @property
    def tf_image(self) -> str: ...
    @property
    def accelerators(self) -> Mapping[str, Accelerator]: ...


@dataclass(frozen=True, slots=True)
class Role:
    """A set of like replicas. `name` is in lower case (`ps`), `replica_type` is what the API calls it (`PS`).

    `serves` is True for roles that run until they are stopped: one that ends with success is started again.
    `template` is the user's PodTemplateSpec with the default server already filled in; shared, never mutated.
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
    """

    role: Role
    index: int
    id: str
    name: str
    is_chief: bool = False
    decides: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """All children that a job should have, and the rules that they run by."""

    namespace: str
    job_name: str
    runtime_id: str
    owner: OwnerReference
    roles: tuple[Role, ...]
    # The chief first, then role by role, by index.
    replicas: tuple[Replica, ...]
    by_name: Mapping[str, Replica]
    chief: Replica
    # Name of the ConfigMap with the default server's script; empty: none is needed.
    config_map: str
    # Variables that the training container of a replica gets, after the user's own.
    environment: Callable[[Replica], Mapping[str, str]]
    accelerators: Mapping[str, Accelerator] = field(default_factory=dict)
    scheduler_name: str = ""
    priority_class_name: str = ""
    # The server knows container-level restart rules (Kubernetes 1.35 and later).
    restart_rules: bool = False


def build_plan(job: TFJob, config: PlanConfig, *, restart_rules: bool = False) -> Plan:
    """Compile a *valid* TFJob that has its RuntimeId (validation is the caller's). Cacheable by (uid, generation)."""
    raise NotImplementedError
