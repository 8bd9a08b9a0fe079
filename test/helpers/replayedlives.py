"""Replays a recording to the decisions of the controller, with the delays that caches can have.

It is an open loop: the controller's writes change nothing, since the recording has their effects. Only the status is
carried on.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from helpers.clusterinmemory import World, decoded
from helpers.recordedlives import CREATED, Life, Moment
from helpers.trainworld import TrainJobs, decoded_train
from recordlives.manifests import Place, manifests
from recordlives.matrix import Case
from tfjob_controller.api.common.core import JOBS, BatchJob, Pod
from tfjob_controller.api.gang import COMPLETION_INDEX_LABEL
from tfjob_controller.api.trainjob.runtime import TrainingRuntime
from tfjob_controller.jobs.actions.model import Actions
from tfjob_controller.jobs.actions.planner import plan_actions
from tfjob_controller.jobs.evaluation.jobstate import JobState
from tfjob_controller.jobs.status.update import next_status
from tfjob_controller.kube.meta import OwnerReference

# Pods are recorded at most so long before their Job, which arrives by another watch.
_SKEW_SECONDS = 0.5
# Less than between any two times of a recording.
_MOMENT = 0.01
# How much later than all changes a job is evaluated once more.
_REST_SECONDS = 60.0


@dataclass(frozen=True)
class Step:
    """One evaluation, at `seconds`."""

    seconds: float
    state: JobState
    actions: Actions


@dataclass
class Replay:
    """The controller of the job of a recording. Its children have the names that the plan gives them."""

    life: Life
    world: World
    # The newest bodies that the controller has planned, by name, and of those that exist the object, by recorded name.
    planned: dict[str, BatchJob] = field(default_factory=dict)
    seen: dict[str, Pod | BatchJob] = field(default_factory=dict)
    jobs: dict[str, BatchJob] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.owners = owners(self.life)

    def at(self, seconds: float) -> None:
        self.world.now = CREATED + timedelta(seconds=seconds)

    def takes(self, moment: Moment | str) -> None:
        """`moment` may be a comment of the recording."""
        if isinstance(moment, str):
            if moment in ("suspend", "resume"):
                self.world.change(suspend=moment == "suspend")
            return
        name = self._job_name(moment.replica)
        key = f"{moment.kind} {moment.name}"
        if moment.obj is None:
            self.seen.pop(key, None)
        elif isinstance(moment.obj, BatchJob):
            self.seen[key] = self._job(moment.name, name, moment.obj)
        else:
            self.seen[key] = self._pod(moment, name, moment.obj)
        self.world.jobs = {each.metadata.name: each for each in self.seen.values() if isinstance(each, BatchJob)}
        self.world.pods = {}
        for known in self.seen.values():
            if isinstance(known, Pod):
                self.world.pods.setdefault(known.metadata.owner_references[0].name, []).append(known)

    def is_new_job(self, moment: Moment) -> bool:
        """Reports whether the moment shows a Job that the controller has created in the same tenth of a second."""
        return moment.kind == "job" and moment.name not in self.jobs

    def syncs(self) -> Step:
        """Evaluates the job until its status does not change any more; returns the last evaluation."""
        for _ in range(10):
            state = self.world.state
            actions = plan_actions(state)
            for create in actions.creates:
                if create.resource is JOBS:
                    meta = {"uid": "", **create.body["metadata"]}
                    self.planned[create.name] = msgspec.convert({**create.body, "metadata": meta}, BatchJob)
            result = next_status(state)
            if result.status is state.status:
                return Step((self.world.now - CREATED).total_seconds(), state, actions)
            self.world.job = self.world.kind.written(self.world.job, result.status)
        raise AssertionError(f"the status never settles: {self.world.job.status}")

    def _job(self, recorded: str, name: str, job: BatchJob) -> BatchJob:
        made = self._made(recorded, name)
        meta = replace(job.metadata, name=name, uid=f"job {recorded}", labels=made.metadata.labels)
        spec = replace(made.spec, suspend=job.spec.suspend, parallelism=job.spec.parallelism)
        return replace(job, metadata=meta, spec=spec)

    def _made(self, recorded: str, name: str) -> BatchJob:
        """Returns the Job as the controller has created it."""
        if recorded not in self.jobs:
            self.jobs[recorded] = self.planned[name]
        return self.jobs[recorded]

    def _pod(self, moment: Moment, name: str, pod: Pod) -> Pod:
        owner = self.owners[moment.name]
        index = {COMPLETION_INDEX_LABEL: moment.replica.rpartition("-")[2]}
        made = self._made(owner, name)
        labels = {**made.metadata.labels, **index}
        reference = OwnerReference(kind="Job", name=name, uid=f"job {owner}", controller=True)
        return replace(pod, metadata=replace(pod.metadata, labels=labels, owner_references=(reference,)))

    def _job_name(self, replica: str) -> str:
        plan = self.world.plan
        found = [each for each in plan.replicas.all if replica in (each.id, each.id.rpartition("-")[0])]
        return found[0].job_name


def replayed(life: Life, lags: Sequence[float] = (0.0,), jobs: dict[str, BatchJob] | None = None) -> Iterator[Step]:
    """Yields the steps of a replay.

    Each change is seen by the next of `lags` later than recorded, pods and Jobs each in order. What is seen at the same
    time leads to one evaluation. `jobs` are those of an earlier replay, by recorded name: the labels of a Job depend on
    what the controller had seen when it created the Job.
    """
    replay = Replay(life, _world(life), jobs=jobs if jobs is not None else {})
    for seconds, group in itertools.groupby(_deliveries(life, lags), key=lambda each: each[0]):
        replay.at(seconds)
        yield replay.syncs()
        for _, each in group:
            if isinstance(each, Moment) and (_is_last(each) or replay.is_new_job(each)):
                yield replay.syncs()
            replay.takes(each)
        yield replay.syncs()
    replay.at(seconds + _REST_SECONDS)
    yield replay.syncs()


def _is_last(moment: Moment) -> bool:
    """Reports whether the moment shows no longer how the object ended, or when its deletion was requested.

    What was before is never skipped.
    """
    pod = moment.obj
    if not isinstance(pod, Pod):
        return pod is None
    return pod.metadata.deletion_timestamp is not None and not pod.metadata.deletion_grace_period_seconds


def _deliveries(life: Life, lags: Sequence[float]) -> list[tuple[float, Moment | str]]:
    """Returns what the controller sees, and when.

    It sees its own writes to Jobs at once. When it writes, it has seen what led to that: all earlier changes.
    """
    moments = _own_writes_first(life)
    latest, next_write = [], math.inf
    for each, is_write in reversed(moments):
        latest.append(each.seconds if is_write else next_write - _MOMENT)
        next_write = each.seconds if is_write else next_write
    delays, seen = itertools.cycle(lags), {"pod": 0.0, "job": 0.0}
    deliveries: list[tuple[float, Moment | str]] = list(life.notes)
    for (each, _), limit in zip(moments, reversed(latest), strict=True):
        seen[each.kind] = max(seen[each.kind], min(limit, each.seconds + next(delays)))
        deliveries.append((seen[each.kind], each))
    return sorted(deliveries, key=lambda each: each[0])


def _own_writes_first(life: Life) -> list[tuple[Moment, bool]]:
    """Returns the moments, and of each whether the controller has created, suspended or deleted a Job in it.

    The creation comes before all that follows from it, which another watch may have shown earlier. The creation of a
    pod counts like a write: a Job whose end is seen without any pod has lost its pod.
    """
    owner_of = owners(life)
    pods = [(index, each) for index, each in enumerate(life.moments) if each.kind == "pod"]
    first = {owner_of[each.name]: (index - 0.5, each.seconds) for index, each in reversed(pods)}
    known: dict[tuple[str, str], tuple[bool, bool]] = {}
    found: list[tuple[float, Moment, bool]] = []
    for index, each in enumerate(life.moments):
        key, wanted, place = (each.kind, each.name), _wanted(each), (float(index), each.seconds)
        if each.kind == "job" and key not in known:
            place = min(place, first.get(each.name, place))
        found.append((place[0], dataclasses.replace(each, seconds=place[1]), known.get(key) != wanted))
        known[key] = wanted
    return [(each, is_write) for _, each, is_write in sorted(found, key=lambda each: each[0])]


def _wanted(moment: Moment) -> tuple[bool, bool]:
    """Returns whether the controller has suspended and deleted a Job."""
    job = moment.obj
    if moment.kind == "pod":
        return False, False
    if not isinstance(job, BatchJob):
        return True, True
    is_deleted = job.metadata.deletion_timestamp is not None
    return job.spec.suspend or is_deleted, is_deleted


def _world(life: Life) -> World:
    *runtimes, job = manifests(Case(tuple(life.inputs.values())), Place("life", "/marks"))
    if not runtimes:
        return World(decoded(job))
    return World(decoded_train(job), TrainJobs(msgspec.convert(runtimes[0], TrainingRuntime).spec))


def owners(life: Life) -> dict[str, str]:
    """Returns the recorded name of the Job of each pod: the last one of the replica that was created before it."""
    first = {(each.kind, each.name): each.seconds for each in reversed(life.moments)}
    return {
        pod: max(
            (since, job)
            for (kind, job), since in first.items()
            if kind == "job" and since <= created + _SKEW_SECONDS and _is_same(job, pod)
        )[1]
        for (pod_kind, pod), created in first.items()
        if pod_kind == "pod"
    }


def _is_same(job: str, pod: str) -> bool:
    job, pod = job.rpartition(".")[0], pod.rpartition(".")[0]
    return job in (pod, pod.rpartition("-")[0])
