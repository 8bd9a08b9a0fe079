"""What a job is made of: roles, and for each of their replicas one child Job and one Service.

Theory of operation. A kind is compiled into a `Plan`, once per generation: a TFJob by `tfjobplan`, a TrainJob by
`trainjobplan`. Everything else in this package knows only plans, what is observed in the cluster, and a status:
children are built from a plan, the difference between plan and cluster gives the writes, and the states of the plan's
replicas give the next status. All of it is pure: no I/O, no clock but arguments, nothing is mutated, so any thread may
call it and results may be cached by `(uid, generation)`.

A plan may have steps, each a plan of its own with a part of the replicas: one begins when the one before is done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfjob_controller.api.tfjob.types import BY_RESTART, CONTAINER_NAME, WORKER
from tfjob_controller.kube.meta import OwnerReference
from tfjob_controller.trainer.gang.terms import OFF, GangTerms, PodGroupTerms

# The role of workers, whom a gang knows as a member of that name.
WORKER_ROLE = WORKER.lower()


class UnplannableError(Exception):
    """The job refers to what is not there, or cannot be run as that says: one sentence. Raised when a plan is made, or
    when it says what a child is made of.

    It may come yet in `seconds_left`; 0: no waiting can help.
    """

    def __init__(self, words: str, seconds_left: float = 0.0) -> None:
        super().__init__(words)
        self.seconds_left = seconds_left


@dataclass(frozen=True, slots=True)
class Role:
    """A set of like replicas. `name` is in lower case (`ps`), `replica_type` is what the API calls it (`PS`).

    `serves` is True for roles that run until they are stopped: one that ends with success is started again.
    `template` is the user's PodTemplateSpec with all filled in that is the same for all; shared, never mutated.
    `container` is the one whose exit code counts. Without a port there is no Service.
    """

    name: str
    replica_type: str
    replicas: int
    port: int
    template: Mapping[str, Any]
    serves: bool = False
    container: str = CONTAINER_NAME
    port_name: str = "tf-port"
    # Training cannot go on without a member: one that fails and may be tried again takes all others with it.
    restarts_together: bool = False


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
class RunPolicy:
    """The rules that a job as a whole runs by. Counts and seconds are None where there is no limit."""

    clean_pod_policy: str
    suspend: bool = False
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None


@dataclass(frozen=True, slots=True)
class GeneratedSecret:
    """Data that is made once, and never looked at again. `type`: as Kubernetes calls what it holds."""

    name: str
    type: str
    make: Callable[[], Mapping[str, bytes]]


@dataclass(frozen=True, slots=True)
class StepShares:
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
    # What all children carry, and are found by.
    labels: Mapping[str, str]
    policy: RunPolicy
    # As the job lists them, those with 0 replicas too.
    roles: tuple[Role, ...]
    # The chief first, then role by role, by index.
    replicas: tuple[Replica, ...]
    by_name: Mapping[str, Replica]
    chief: Replica
    # Variables that the training container of a replica gets, after the user's own.
    environment: Callable[[Replica], Mapping[str, str]]
    # Replicas whose success is the job's; only the chief's if there are none.
    needed: tuple[Replica, ...] = ()
    # Name of the ConfigMap that pods mount, and what is in it; empty: none is needed.
    config_map: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    # A GeneratedSecret that pods mount, made when the first of them is.
    secret: GeneratedSecret | None = None
    scheduler_name: str = ""
    priority_class_name: str = ""
    gang: GangTerms | None = None
    # The same, where another scheduler sees to it.
    pod_group: PodGroupTerms | None = None
    # Its scheduler wants no pods now: `policy.suspend` is True for that, and not because the user says so.
    is_held: bool = False
    # The job asks to be a gang, and the controller's flags say that none is.
    is_gang_refused: bool = False
    # How the number of workers changes; empty for a job without autoscaling.
    resize: str = ""
    # With resize InPlace: all replicas that there may ever be, in the same order. Those that there are: see `elastic`.
    candidates: tuple[Replica, ...] = ()
    # Where all are restarted at once: children of another generation are stopped.
    restart_attempt: int = 0
    # How a worker's log says how many steps it has done; None: an annotation of its pod does.
    progress_pattern: re.Pattern[str] | None = None
    total_steps: int | None = None
    # Of a job with total_steps: see `scaling.progress`.
    step_shares: StepShares | None = None
    # Bounds of the workers; None without autoscaling.
    worker_bounds: tuple[int, int] | None = None
    # What is done about the gang scheduler's resize requests: see `gang.terms.GangPolicy`.
    autoscaling: str = OFF
    # Which field says how many workers there should be.
    workers_field: str = ""
    # Of the user, for all children and their pods.
    added_labels: Mapping[str, str] = field(default_factory=dict)
    added_annotations: Mapping[str, str] = field(default_factory=dict)
    # Containers that only bring data or take it away, by name.
    data_containers: frozenset[str] = frozenset()
    # Parts of this plan that run one after another; none: it is one step.
    steps: tuple[Plan, ...] = ()

    @property
    def restarts_together(self) -> bool:
        return any(role.restarts_together for role in self.roles)

    @property
    def is_suspended(self) -> bool:
        """By its user."""
        return self.policy.suspend and not self.is_held

    @property
    def has_restart_attempts(self) -> bool:
        return self.restarts_together or self.resize == BY_RESTART

    @property
    def counts_steps(self) -> bool:
        return self.total_steps is not None or self.progress_pattern is not None
