"""A cluster in memory whose controller has stale caches: those of child Jobs and of pods lag independently.

`truth` holds the actual state. The controller's own writes are in its cache at once (see `kube.cache.store`), other
changes when a test lets a cache catch up. The Job controller and the kubelets behave as in Kubernetes 1.36
(pkg/controller/job/job_controller.go): pods that the Job controller deletes are not counted, a suspended Job never
ends, and no pod is created while another one is terminating.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec.structs

from helpers.clusterinmemory import World
from helpers.gangs import member_ids
from helpers.trainworld import admit
from tfjob_controller.api.common.core import JOBS, BatchJob, Condition, Pod
from tfjob_controller.api.gang import BOUND, REQUESTED, WAITING, NodePlacement, Preemption, must_leave
from tfjob_controller.jobs.actions.model import Actions, Create, Delete
from tfjob_controller.jobs.actions.planner import plan_actions
from tfjob_controller.jobs.evaluation.jobstate import JobState, evaluate
from tfjob_controller.jobs.state.observed import job_outcome
from tfjob_controller.jobs.state.pods import is_finished, is_owned_by
from tfjob_controller.jobs.status.update import next_status
from tfjob_controller.kinds.tfjob.plan import WORKER_ROLE
from tfjob_controller.util.timestamps import format_time


@dataclass
class LaggingCluster:
    """`stops_with` is the exit code of a program after SIGTERM."""

    truth: World
    stops_with: int = 143
    seen_jobs: dict[str, BatchJob] = field(default_factory=dict)
    seen_pods: dict[str, list[Pod]] = field(default_factory=dict)
    failures: int = 0
    # Whether the controller has scheduled a later sync.
    wakes: bool = False
    # Pods whose finalizer the Job controller has removed before it deleted them: their end is not counted.
    _uncounted: set[str] = field(default_factory=set)

    # Steps of the controller

    def sync(self) -> bool:
        """Runs one sync; returns whether it had any action."""
        truth = self.truth
        actions = plan_actions(self._state())
        self._carry_out(actions)
        state = self._state()
        result = next_status(state)
        if result.status is not state.status:
            truth.job = truth.kind.written(truth.job, result.status)
        truth.events.extend(result.events)
        self.wakes = result.wake_after_seconds is not None
        return bool(actions) or result.status is not state.status

    def dies(self, writes: int) -> None:
        """The controller crashes during a sync, after so many of its writes, and before it writes the status."""
        self._send(writes)
        self.jobs_seen()
        self.pods_seen()

    def _send(self, writes: int) -> None:
        """Carries out the first writes of a sync."""
        actions = plan_actions(self._state())
        all_of_them = [
            *(Actions(creates=(each,)) for each in actions.creates),
            *(Actions(deletes=(each,)) for each in actions.deletes),
            *(Actions(suspends=(each,)) for each in actions.suspends),
            *(Actions(patches=(each,)) for each in actions.patches),
        ]
        for each in all_of_them[:writes]:
            self._carry_out(each)

    def fails_over(self, writes: int) -> None:
        """The controller crashes as in `dies`, and a standby leads, whose caches do not show these writes yet."""
        jobs = dict(self.seen_jobs)
        self._send(writes)
        self.seen_jobs = jobs

    def _state(self) -> JobState:
        """Returns the state that the controller sees."""
        truth = self.truth
        observed = replace(truth.observed, jobs=dict(self.seen_jobs), pods=dict(self.seen_pods))
        return evaluate(truth.work, truth.plan, observed, truth.now)

    def jobs_seen(self) -> None:
        self.seen_jobs = dict(self.truth.jobs)

    def pods_seen(self) -> None:
        self.seen_pods = {name: list(pods) for name, pods in self.truth.pods.items()}

    def _carry_out(self, actions: Actions) -> None:
        """Applies actions to the actual state: adopts existing children, and ignores deleted or recreated ones."""
        truth = self.truth
        for create in actions.creates:
            if not _exists(truth, create):
                truth.carry_out(Actions(creates=(create,)))
            self._assume(create.name)
        for delete in actions.deletes:
            if self._is_as_seen(delete):
                truth.carry_out(Actions(deletes=(delete,)))
                self._assume(delete.name)
        truth.carry_out(Actions(patches=actions.patches))
        for toggled in actions.suspends:
            if toggled.name in truth.jobs:
                job = truth.jobs[toggled.name]
                spec = msgspec.structs.replace(job.spec, suspend=toggled.suspend)
                truth.jobs[toggled.name] = msgspec.structs.replace(job, spec=spec)
                self._assume(toggled.name)

    def _is_as_seen(self, delete: Delete) -> bool:
        """Whether the child Job has the cached version; only then it is deleted."""
        if delete.resource is not JOBS:
            return True
        job = self.truth.jobs.get(delete.name)
        return job is not None and job is self.seen_jobs.get(delete.name)

    def _assume(self, name: str) -> None:
        if name in self.truth.jobs:
            self.seen_jobs[name] = self.truth.jobs[name]

    # Steps of the gang scheduler, in a cluster with enough capacity

    def gang_scheduler(self) -> None:
        gang = self.truth.gang
        if gang is None:
            return
        if gang.spec.suspend:
            status = msgspec.structs.replace(gang.status, phase="", placement=())
            self.truth.gang = msgspec.structs.replace(gang, status=status)
        elif must_leave(gang):
            if all(is_finished(pod) for pods in self.truth.pods.values() for pod in pods):
                self._set_gang_status(phase=WAITING, placement=())
        elif not gang.status.placement:
            admit(self.truth)
        elif gang.status.placement[0].members != member_ids(gang.spec):
            # The owner has resized it.
            self._set_gang_status(placement=(NodePlacement("n1", member_ids(gang.spec)),))

    def is_preempted(self) -> None:
        """A gang of higher priority comes: the gang scheduler asks for all pods."""
        gang = self.truth.gang
        if gang is not None and gang.status.placement and not gang.spec.suspend:
            preemption = Preemption("other/urgent", REQUESTED, format_time(self.truth.now))
            self._set_gang_status(phase=BOUND, preemption=preemption)

    def returns_to_queue(self) -> None:
        """The attempt is given up."""
        self._set_gang_status(phase=WAITING, placement=())

    def _set_gang_status(self, **changes: Any) -> None:
        gang = self.truth.gang
        if gang is not None:
            self.truth.gang = msgspec.structs.replace(gang, status=msgspec.structs.replace(gang.status, **changes))

    # Steps of the Job controller, the garbage collector and the kubelets

    def job_controller(self, replica_id: str) -> None:
        """Syncs one Job."""
        truth = self.truth
        name = truth.name(replica_id)
        job = truth.jobs.get(name)
        if job is None:
            return
        pods = self._pods_of(name)
        if job.metadata.deletion_timestamp is not None:
            self._collect(name, pods)
        elif not job_outcome(job):
            self._run(replica_id, job, pods)

    def _run(self, replica_id: str, job: BatchJob, pods: Sequence[Pod]) -> None:
        own = [pod for pod in self.truth.pods_of(replica_id) if is_owned_by(pod, job.metadata.uid)]
        outcome = self._outcome(own)
        if outcome and not job.spec.suspend:
            self.truth.job_ends(replica_id, outcome)
        elif job.spec.suspend:
            self._uncounted.update(pod.metadata.uid for pod in pods if not is_finished(pod))
            self.truth.told_to_go(job.metadata.name)
            self._says_suspended(replica_id, job)
        else:
            self.truth.job_status(replica_id, conditions=())
            if all(is_finished(pod) for pod in own):
                self.truth.pod(replica_id, newest=True, phase="Pending")

    def _says_suspended(self, replica_id: str, job: BatchJob) -> None:
        if not job.status.conditions:
            said = Condition("Suspended", "True", last_transition_time=format_time(self.truth.now))
            self.truth.job_status(replica_id, conditions=(said,))

    def _outcome(self, pods: Sequence[Pod]) -> str:
        for pod in pods:
            if pod.status.phase == "Failed" and self._counts(pod):
                return "Failed"
        return "Complete" if any(pod.status.phase == "Succeeded" and self._counts(pod) for pod in pods) else ""

    def _counts(self, pod: Pod) -> bool:
        return pod.metadata.uid not in self._uncounted

    def _collect(self, name: str, pods: Sequence[Pod]) -> None:
        """Deletes the dependents of a Job that is deleted in the foreground."""
        if pods:
            self.truth.told_to_go(name)
        else:
            self.truth.delete_job(name)

    def kubelet(self, replica_id: str) -> None:
        """Takes one step with each pod of a replica: starts it, ends a terminating one, or removes an ended one."""
        name = self.truth.name(replica_id)
        for pod in self.truth.pods_of(replica_id):
            if pod.metadata.deletion_timestamp is None:
                if not is_finished(pod):
                    self.truth.runs(replica_id)
            elif not is_finished(pod) and _has_run(pod):
                self.truth.exits(replica_id, self.stops_with, "Error" if self.stops_with else "Completed")
            else:
                self.truth.pods[name].remove(pod)

    def all_act(self) -> None:
        """The Job controller syncs all Jobs, and each kubelet takes one step."""
        for replica_id in self.truth.replicas:
            self.job_controller(replica_id)
            self.kubelet(replica_id)

    def suspend(self, wanted: bool) -> None:
        self.truth.change(suspend=wanted)

    def resize(self, count: int) -> None:
        """Changes the number of a TFJob's workers, or of a TrainJob's nodes."""
        self.truth.change(**{"worker_replicas" if self.truth.plan.scaling.role == WORKER_ROLE else "num_nodes": count})

    def advance(self) -> None:
        self.truth.advance(1)

    def is_killed(self, replica_id: str) -> None:
        """The replica's program is killed if it runs, for example by the kernel."""
        if self._is_running(replica_id):
            self.truth.exits(replica_id, 137, "Error")
            self.failures += 1

    def succeeds(self, replica_id: str) -> None:
        """The replica's program ends with 0 if it runs."""
        if self._is_running(replica_id):
            self.truth.exits(replica_id, 0, "Completed")

    def _is_running(self, replica_id: str) -> bool:
        running = [pod for pod in self.truth.pods_of(replica_id) if not is_finished(pod) and _has_run(pod)]
        return bool(running) and all(pod.metadata.deletion_timestamp is None for pod in running)

    def _pods_of(self, name: str) -> Sequence[Pod]:
        return self.truth.pods.get(name, ())

    def _everything(self) -> tuple[Any, ...]:
        truth = self.truth
        return truth.job, dict(truth.jobs), {name: list(pods) for name, pods in truth.pods.items()}, truth.gang

    def runs_on(self) -> None:
        """All components act, and all caches catch up, until nothing changes any more."""
        for _ in range(100):
            before = self._everything()
            self.gang_scheduler()
            self.all_act()
            self.jobs_seen()
            self.pods_seen()
            self.sync()
            self.truth.advance(1)
            if not self.wakes and before == self._everything():
                return
        raise AssertionError(f"never settles: {self.truth.job.status}")


def _exists(truth: World, create: Create) -> bool:
    return {"Job": truth.jobs, "Service": truth.services}.get(create.resource.kind, {}).get(create.name) is not None


def _has_run(pod: Pod) -> bool:
    return bool(pod.status.container_statuses)
