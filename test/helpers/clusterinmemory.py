"""A cluster in memory with one job. It applies the trainer's actions; tests report what nodes do.

It keeps objects as the caches do, and performs only those steps of the Job controller that a test calls. There are no
threads, and the only time is `now`, which a test sets. The job is a TFJob unless a `Kind` says otherwise
(`helpers.trainworld` has TrainJobs).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from helpers.manifests import tfjob
from helpers.memoryapi import merged
from tfjob_controller.api.common.core import (
    JOBS,
    PODS,
    SERVICES,
    BatchJob,
    Condition,
    ContainerState,
    ContainerStatus,
    HorizontalPodAutoscaler,
    Pod,
    PodGroup,
    PodMeta,
    PodStatus,
    Running,
    Service,
    Terminated,
    Waiting,
)
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.gang import COMPLETION_INDEX_LABEL, Gang
from tfjob_controller.api.tfjob.status import TFJobStatus
from tfjob_controller.api.tfjob.types import CONTAINER_NAME, TFJob
from tfjob_controller.controller.decoders import decode_autoscaler
from tfjob_controller.jobs.actions.model import Actions, Patch
from tfjob_controller.jobs.actions.planner import plan_actions
from tfjob_controller.jobs.conditions import StatusEvent
from tfjob_controller.jobs.evaluation.jobstate import JobState, evaluate
from tfjob_controller.jobs.plan.gangterms import NO_GANGS, GangPolicy
from tfjob_controller.jobs.plan.model import Plan, Replica
from tfjob_controller.jobs.state.observed import ObservedState, Obstacle, Reading, indexes, job_outcome
from tfjob_controller.jobs.state.pods import is_finished
from tfjob_controller.jobs.state.replica_state import LOST_AFTER_SECONDS
from tfjob_controller.jobs.status.update import StatusResult, next_status
from tfjob_controller.jobs.trainingjob import TrainingJob, TrainingStatus
from tfjob_controller.kinds.tfjob.plan import build_plan
from tfjob_controller.kinds.tfjob.status import from_wire, tfjob_work, to_wire
from tfjob_controller.kube.meta import OwnerReference, Resource
from tfjob_controller.util.timestamps import format_time

START = datetime(2026, 1, 1, tzinfo=UTC)
# The terminationGracePeriodSeconds of all pods, and when a pod counts as lost that is deleted now.
GRACE_SECONDS = 30
LOST_SECONDS = GRACE_SECONDS + LOST_AFTER_SECONDS
_uids = itertools.count(1)


# The field of the objects of which a job has one, by kind, and how they are decoded.
_SINGLE: Mapping[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "Gang": ("gang", partial(msgspec.convert, type=Gang)),
    "PodGroup": ("pod_group", partial(msgspec.convert, type=PodGroup)),
    "Workload": ("pod_group", partial(msgspec.convert, type=PodGroup)),
    "HorizontalPodAutoscaler": ("autoscaler", lambda body: decode_autoscaler(msgspec.json.encode(body))),
}


def decoded(manifest: dict[str, Any], **metadata: Any) -> TFJob:
    """Returns the job of a manifest as the API server would return it, including RuntimeId."""
    meta = {"namespace": "ns", "uid": "uid-job", "generation": 1, "creationTimestamp": format_time(START), **metadata}
    spec = {"RuntimeId": "a6no", **manifest["spec"]}
    return msgspec.convert({"metadata": manifest["metadata"] | meta, "spec": spec}, TFJob)


def plan_of(
    *replica_specs: Any,
    restart_rules: bool = True,
    name: str = "example-job",
    gangs: GangPolicy = NO_GANGS,
    **spec: Any,
) -> Plan:
    job = decoded(tfjob(*replica_specs, name=name, **spec))
    return build_plan(job, ControllerConfig(), restart_rules=restart_rules, gangs=gangs)


class Kind(Protocol):
    """The functions of a kind of job."""

    def plan(self, job: Any, gangs: GangPolicy, *, restart_rules: bool) -> Plan: ...

    def work(self, job: Any) -> TrainingJob: ...

    def written(self, job: Any, status: TrainingStatus) -> Any:
        """Returns the job as it is read after that status was written."""


class _TFJobs:
    def plan(self, job: TFJob, gangs: GangPolicy, *, restart_rules: bool) -> Plan:
        return build_plan(job, ControllerConfig(), restart_rules=restart_rules, gangs=gangs)

    def work(self, job: TFJob) -> TrainingJob:
        return tfjob_work(job)

    def written(self, job: TFJob, status: TrainingStatus) -> TFJob:
        wire = msgspec.json.decode(msgspec.json.encode(to_wire(status, job.status)), type=TFJobStatus)
        assert from_wire(wire) == status
        return replace(job, status=wire)


@dataclass
class World:
    """`events` has all emitted events.

    With `lingers`, objects that are deleted in the foreground stay until `reap`, and so do the pods of objects that are
    deleted otherwise.
    """

    job: Any
    kind: Kind = field(default_factory=_TFJobs)
    restart_rules: bool = True
    gangs: GangPolicy = NO_GANGS
    gang: Gang | None = None
    pod_group: PodGroup | None = None
    autoscaler: HorizontalPodAutoscaler | None = None
    now: datetime = START
    jobs: dict[str, BatchJob] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)
    pods: dict[str, list[Pod]] = field(default_factory=dict)
    orphans: dict[str, list[Pod]] = field(default_factory=dict)
    has_config_map: bool = False
    has_secret: bool = False
    status_writes: int = 0
    events: list[StatusEvent] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    lingers: bool = False
    stops_slowly: bool = False
    readings: dict[str, Reading] | None = None
    # The newest warnings by the UIDs of pods and Jobs, which are observed where their status gives no reason.
    warnings: dict[str, str] = field(default_factory=dict)
    # The numbers of indexes that Indexed Jobs were resized to.
    resizes: list[int] = field(default_factory=list)
    _replicas: dict[str, Replica] = field(default_factory=dict, repr=False, compare=False)
    # The plan, and what it was compiled from.
    _planned: tuple[tuple[Any, ...], Plan] | None = field(default=None, repr=False, compare=False)

    @property
    def plan(self) -> Plan:
        """Compiles the plan once for each job: jobs are frozen, and a kind compiles equal jobs into equal plans."""
        made_of = (self.job, self.kind, self.gangs, self.restart_rules)
        if self._planned is None or any(
            each is not other for each, other in zip(self._planned[0], made_of, strict=True)
        ):
            self._planned = made_of, self.kind.plan(self.job, self.gangs, restart_rules=self.restart_rules)
        return self._planned[1]

    @property
    def work(self) -> TrainingJob:
        return self.kind.work(self.job)

    @property
    def status(self) -> TrainingStatus:
        return self.work.status

    @property
    def observed(self) -> ObservedState:
        return ObservedState(
            dict(self.jobs),
            dict(self.services),
            dict(self.pods),
            self.has_config_map,
            self.gang,
            readings=self.readings,
            has_secret=self.has_secret,
            pod_group=self.pod_group,
            autoscaler=self.autoscaler,
            orphans=dict(self.orphans),
            warnings=self.warnings,
        )

    def replica(self, replica_id: str) -> Replica:
        return self.replicas[replica_id]

    @property
    def replicas(self) -> dict[str, Replica]:
        """The replicas by id, including those that the job had when this was last read."""
        planned = self.plan.replicas
        self._replicas.update((replica.id, replica) for replica in planned.candidates or planned.all)
        return self._replicas

    def name(self, replica_id: str) -> str:
        """Of the child Job that runs it."""
        return self.replica(replica_id).job_name

    def pods_of(self, replica_id: str) -> list[Pod]:
        """The oldest first."""
        replica = self.replica(replica_id)
        return [pod for pod in self.pods.get(replica.job_name, ()) if _runs(pod, replica)]

    # Steps of the controller

    @property
    def state(self) -> JobState:
        return evaluate(self.work, self.plan, self.observed, self.now)

    def actions(self) -> Actions:
        return plan_actions(self.state)

    def sync(self, obstacles: Sequence[Obstacle] = ()) -> StatusResult:
        """Runs one sync: applies its writes, then its status."""
        self.carry_out(self.actions())
        state = self.state
        result = next_status(state, obstacles)
        if result.status is not state.status:
            self.status_writes += 1
            self.job = self.kind.written(self.job, result.status)
        self.events.extend(result.events)
        return result

    def settle(self) -> StatusResult:
        """Syncs until nothing changes any more."""
        for _ in range(10):
            before = self.job.status
            actions = self.actions()
            result = self.sync()
            if self.job.status is before and not actions:
                return result
        raise AssertionError(f"never settles: {self.actions()} {self.job.status}")

    def carry_out(self, actions: Actions) -> None:
        for create in actions.creates:
            self._create(create.resource.kind, create.name, create.body)
        for delete in actions.deletes:
            if delete.foreground and self.lingers:
                self._begin_deletion(delete.name)
            elif delete.resource is JOBS and self.lingers:
                self.jobs.pop(delete.name)
                self.told_to_go(delete.name)
            else:
                self._delete(delete.resource, delete.name)
        for toggled in actions.suspends:
            self.suspend_job(toggled.name, toggled.suspend)
        for patch in actions.patches:
            self._patch(patch)

    def _create(self, kind: str, name: str, body: dict[str, Any]) -> None:
        self.created.append(f"{kind}/{name}")
        meta = {"uid": f"uid-{next(_uids)}", "creationTimestamp": format_time(self.now)}
        given = {**body, "metadata": body["metadata"] | meta}
        if kind == "Job":
            assert name not in self.jobs, f"{name} exists"
            self.jobs[name] = msgspec.convert(given, BatchJob)
        elif kind in _SINGLE:
            assert getattr(self, _SINGLE[kind][0]) is None
            self._put_single(kind, given)
        elif kind == "Service":
            self.services[name] = msgspec.convert(given, Service)
        elif kind == "Secret":
            assert not self.has_secret
            self.has_secret = True
        else:
            self.has_config_map = True

    def _begin_deletion(self, name: str) -> None:
        job = self.jobs[name]
        self.jobs[name] = replace(job, metadata=replace(job.metadata, deletion_timestamp=format_time(self.now)))

    def reap(self) -> None:
        """Removes all objects that are being deleted."""
        for name, job in list(self.jobs.items()):
            if job.metadata.deletion_timestamp is not None:
                self.delete_job(name)
        if self.lingers:
            self.pods = {
                name: [pod for pod in pods if pod.metadata.deletion_timestamp is None]
                for name, pods in self.pods.items()
            }

    def told_to_go(self, name: str) -> None:
        """Marks the pods of a child Job as being deleted."""
        self.pods[name] = [self._going(pod) for pod in self.pods.get(name, [])]

    def _going(self, pod: Pod) -> Pod:
        if pod.metadata.deletion_timestamp is not None:
            return pod
        # The API server gives no time to a pod in which nothing runs any more.
        grace = 0 if is_finished(pod) else GRACE_SECONDS
        time = format_time(self.now + timedelta(seconds=grace))
        meta = replace(pod.metadata, deletion_timestamp=time, deletion_grace_period_seconds=grace)
        return replace(pod, metadata=meta)

    def _patch(self, patch: Patch) -> None:
        """Patches a Job, or an object of which a job has one; null removes a field (RFC 7386)."""
        if patch.body == {"spec": {"activeDeadlineSeconds": 1}}:
            self._end_job(patch.name)
            return
        if patch.resource == JOBS:
            self._resize_job(patch.name, patch.body["spec"])
            return
        old = getattr(self, _SINGLE[patch.resource.kind][0])
        assert old.metadata.name == patch.name
        self._put_single(patch.resource.kind, merged(msgspec.to_builtins(old), patch.body))

    def _put_single(self, kind: str, body: dict[str, Any]) -> None:
        name, decode = _SINGLE[kind]
        setattr(self, name, decode(body))

    def _resize_job(self, name: str, spec: dict[str, int]) -> None:
        """As the Job controller does: it deletes the unfinished pods of the indexes that are left out."""
        assert spec.keys() == {"parallelism", "completions"}
        assert len(set(spec.values())) == 1
        self.resizes.append(spec["parallelism"])
        job = self.jobs[name]
        self.jobs[name] = replace(job, spec=replace(job.spec, parallelism=spec["parallelism"]))
        going = [
            self._going(pod)
            if int(pod.metadata.labels[COMPLETION_INDEX_LABEL]) >= spec["parallelism"] and not is_finished(pod)
            else pod
            for pod in self.pods.get(name, [])
        ]
        self.pods[name] = [pod for pod in going if self.lingers or pod.metadata.deletion_timestamp is None]

    def _delete(self, resource: Resource, name: str) -> None:
        if resource == JOBS:
            self.delete_job(name)
        elif resource == SERVICES:
            del self.services[name]
        elif resource == PODS:
            for child in self.pods:
                self.pods[child] = [pod for pod in self.pods[child] if pod.metadata.name != name]
        elif resource.kind in _SINGLE:
            setattr(self, _SINGLE[resource.kind][0], None)

    def suspend_job(self, name: str, suspend: bool) -> None:
        """As the Job controller does: deletes unfinished pods at once, or with `stops_slowly` only marks them."""
        job = self.jobs[name]
        self.jobs[name] = replace(job, spec=replace(job.spec, suspend=suspend))
        if suspend and not job_outcome(job):
            said = Condition("Suspended", "True", last_transition_time=format_time(self.now))
            self.jobs[name] = replace(self.jobs[name], status=replace(job.status, conditions=(said,)))
        if suspend:
            self._stop_pods(name)

    def _end_job(self, name: str) -> None:
        """As the Job controller does with a Job that has lasted too long."""
        job = self.jobs[name]
        ended = Condition("Failed", "True", "DeadlineExceeded", last_transition_time=format_time(self.now))
        self.jobs[name] = replace(job, status=replace(job.status, active=0, conditions=(ended,)))
        self._stop_pods(name)

    def _stop_pods(self, name: str) -> None:
        pods = self.pods.get(name, [])
        going = [self._going(pod) if not is_finished(pod) else pod for pod in pods]
        self.pods[name] = going if self.stops_slowly else [pod for pod in pods if is_finished(pod)]

    # Steps of users

    def change(self, **spec: Any) -> None:
        meta = replace(self.job.metadata, generation=self.job.metadata.generation + 1)
        self.job = replace(self.job, metadata=meta, spec=replace(self.job.spec, **spec))

    def delete_job(self, name: str) -> None:
        """Deletes a child Job and its pods."""
        del self.jobs[name]
        self.pods.pop(name, None)

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    # Steps of the Job controller and of kubelets

    def job_status(self, replica_id: str, **status: Any) -> None:
        name = self.name(replica_id)
        job = self.jobs[name]
        self.jobs[name] = replace(job, status=replace(job.status, **status))

    def job_ends(self, replica_id: str, outcome: str, message: str = "") -> None:
        """An Indexed Job ends once all of its pods have ended: it is complete, or failed if one of them failed."""
        replica, count = self.replica(replica_id), 1
        if replica.role.job_name:
            done = indexes(self.jobs[replica.job_name].status.completed_indexes)
            failed = {_index_of(pod) for pod in self.pods.get(replica.job_name, []) if pod.status.phase == "Failed"}
            done |= {replica.index} if outcome == "Complete" else set()
            failed |= {replica.index} if outcome == "Failed" else set()
            # An elastic role has no limit for its indexes.
            lost = set() if replica.role.is_elastic else failed - done
            done_text, lost_text = (",".join(map(str, sorted(each))) for each in (done, lost))
            self.job_status(replica_id, completed_indexes=done_text, failed_indexes=lost_text)
            if len(done | failed) < replica.role.replicas:
                return
            outcome = "Failed" if failed - done else "Complete"
            count = len(done if outcome == "Complete" else failed)
        condition = Condition(outcome, "True", message=message, last_transition_time=format_time(self.now))
        if outcome == "Complete":
            self.job_status(replica_id, conditions=(condition,), active=0, succeeded=count)
        else:
            target = replace(condition, type="FailureTarget")
            self.job_status(replica_id, conditions=(target, condition), active=0, failed=count)

    def pod(self, replica_id: str, *, newest: bool = False, **status: Any) -> Pod:
        """Sets the status of a replica's pod; creates the pod if there is none, or if it should be the newest."""
        replica, pods = self.replica(replica_id), self.pods_of(replica_id)
        if newest or not pods or not self._is_of_job(pods[-1], replica.job_name):
            pods = [self._new_pod(replica)]
            self.pods.setdefault(replica.job_name, []).append(pods[-1])
        old = pods[-1]
        given = {"start_time": format_time(self.now), **status} if not old.status.start_time else status
        return self._replace_pod(replica, old, replace(old, status=replace(old.status, **given)))

    def _replace_pod(self, replica: Replica, old: Pod, new: Pod) -> Pod:
        self.pods[replica.job_name] = [new if pod is old else pod for pod in self.pods[replica.job_name]]
        return new

    def _is_of_job(self, pod: Pod, name: str) -> bool:
        return name not in self.jobs or pod.metadata.owner_references[0].uid == self.jobs[name].metadata.uid

    def _new_pod(self, replica: Replica) -> Pod:
        name = replica.job_name
        owner = OwnerReference(kind="Job", name=name, uid=self.jobs[name].metadata.uid, controller=True)
        uid = f"uid-{next(_uids)}"
        index = {COMPLETION_INDEX_LABEL: str(replica.index)} if replica.role.job_name else {}
        meta = PodMeta(
            name=f"{replica.name}-{uid}",
            uid=uid,
            creation_timestamp=format_time(self.now),
            labels={**self.jobs[name].metadata.labels, **index},
            owner_references=(owner,),
        )
        return Pod(meta, status=PodStatus(phase="Pending"))

    def pod_deleted(self, replica_id: str) -> None:
        """A user deletes the pod, which is being deleted from now on."""
        old = self.pods_of(replica_id)[-1]
        self._replace_pod(self.replica(replica_id), old, self._going(old))

    def runs(self, replica_id: str, *, newest: bool = False, restart_count: int = 0) -> None:
        last = self._last(replica_id) if restart_count else ContainerState()
        self.pod(
            replica_id,
            newest=newest,
            phase="Running",
            container_statuses=(running(self._container(replica_id), restart_count=restart_count, last=last),),
        )

    def hangs(self, replica_id: str) -> Pod:
        """The pod has a node, and nothing in its status says why no container starts."""
        container = waiting("ContainerCreating", name=self._container(replica_id))
        scheduled = Condition("PodScheduled", "True", last_transition_time=format_time(self.now))
        pod = self.pod(replica_id, phase="Pending", container_statuses=(container,), conditions=(scheduled,))
        return self._replace_pod(self.replica(replica_id), pod, replace(pod, spec=replace(pod.spec, node_name="n")))

    def _container(self, replica_id: str) -> str:
        return self.replica(replica_id).role.container

    def _last(self, replica_id: str) -> ContainerState:
        pods = self.pods_of(replica_id) or [Pod(PodMeta())]
        statuses = pods[-1].status.container_statuses or (ContainerStatus(),)
        return statuses[0].state if statuses[0].state.terminated else statuses[0].last_state

    def exits(self, replica_id: str, exit_code: int, reason: str = "", message: str = "", phase: str = "") -> None:
        """The training container ends; the pod and its Job end with it unless `phase` says otherwise.

        The Job of a single replica gives up with its pod; that of a set is ended by `job_ends`.
        """
        phase = phase or ("Failed" if exit_code else "Succeeded")
        ended = Terminated(exit_code, reason, message, finished_at=format_time(self.now))
        before = next(iter(self.pod(replica_id).status.container_statuses), ContainerStatus())
        container = terminated(ended, before.restart_count, name=self._container(replica_id))
        self.pod(replica_id, phase=phase, container_statuses=(replace(container, last_state=before.last_state),))
        replica = self.replica(replica_id)
        job = self.jobs.get(replica.job_name) if not replica.role.restarts_together else None
        # The Job controller does not count the pods that it deletes when the Job is suspended.
        if job is not None and phase in _JOB_OUTCOMES and not job_outcome(job) and not job.spec.suspend:
            self.job_ends(replica_id, _JOB_OUTCOMES[phase])

    def pods_catch_up(self) -> None:
        """The kubelets report the phase of pods whose training container succeeded, and stop pods of finished Jobs."""
        for name, pods in self.pods.items():
            is_over = name in self.jobs and job_outcome(self.jobs[name]) != ""
            self.pods[name] = [
                replace(pod, status=replace(pod.status, phase="Succeeded"))
                if _has_ended_well(pod)
                else self._stopped(pod)
                if is_over and not is_finished(pod)
                else pod
                for pod in pods
            ]

    def _stopped(self, pod: Pod) -> Pod:
        ended = ContainerState(terminated=Terminated(143, "Error", finished_at=format_time(self.now)))
        containers = tuple(replace(each, state=ended, ready=False) for each in pod.status.container_statuses)
        return replace(self._going(pod), status=replace(pod.status, phase="Failed", container_statuses=containers))

    def all_run(self) -> None:
        for replica in self.state.plan.replicas.all:
            if replica.id not in self.status.succeeded_indexes and replica.job_name in self.jobs:
                self.runs(replica.id)


_JOB_OUTCOMES = {"Failed": "Failed", "Succeeded": "Complete"}


def _index_of(pod: Pod) -> int:
    return int(pod.metadata.labels[COMPLETION_INDEX_LABEL])


def _runs(pod: Pod, replica: Replica) -> bool:
    return not replica.role.job_name or pod.metadata.labels.get(COMPLETION_INDEX_LABEL) == str(replica.index)


def _has_ended_well(pod: Pod) -> bool:
    ended = [status.state.terminated for status in pod.status.container_statuses]
    return bool(ended) and all(each is not None and each.exit_code == 0 for each in ended)


def running(
    name: str = CONTAINER_NAME, *, restart_count: int = 0, last: ContainerState | None = None, ready: bool = True
) -> ContainerStatus:
    state = ContainerState(running=Running())
    return ContainerStatus(name, ready, restart_count, state, last or ContainerState())


def terminated(ended: Terminated, restart_count: int = 0, *, name: str = CONTAINER_NAME) -> ContainerStatus:
    return ContainerStatus(name, False, restart_count, ContainerState(terminated=ended))


def waiting(
    reason: str,
    message: str = "",
    *,
    name: str = CONTAINER_NAME,
    last: Terminated | None = None,
    restart_count: int = 0,
) -> ContainerStatus:
    state, before = ContainerState(waiting=Waiting(reason, message)), ContainerState(terminated=last)
    return ContainerStatus(name, False, restart_count, state, before)


def world(*replica_specs: Any, restart_rules: bool = True, name: str = "example-job", **spec: Any) -> World:
    """Returns a world with one new job; without replica specs, the job of the tutorial."""
    return World(decoded(tfjob(*replica_specs, name=name, **spec)), restart_rules=restart_rules)


def running_world(*replica_specs: Any, restart_rules: bool = True, **spec: Any) -> World:
    """Returns a world in which all replicas run."""
    made = world(*replica_specs, restart_rules=restart_rules, **spec)
    made.settle()
    made.all_run()
    made.settle()
    return made
