"""A job as a gang, with any statuses of its scheduler and any events of its pods: two attempts never coexist."""

from __future__ import annotations

import dataclasses

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers.clusterinmemory import World, world
from helpers.gangs import member_ids
from helpers.manifests import master, workers
from tfjob_controller.api.common.core import BatchJob
from tfjob_controller.api.gang import (
    ADMITTED,
    ATTEMPT_LABEL,
    BOUND,
    MEMBER_LABEL,
    RELEASED,
    WAITING,
    NodePlacement,
    placed_nodes,
)
from tfjob_controller.jobs.actions.model import Actions, Delete
from tfjob_controller.jobs.gang.admission import is_placed
from tfjob_controller.jobs.plan.gangterms import ON_REQUEST, GangPolicy
from tfjob_controller.jobs.state.observed import JOB_COMPLETE, job_outcome
from tfjob_controller.jobs.state.pods import is_finished
from tfjob_controller.jobs.status.update import next_status
from tfjob_controller.util.timestamps import format_time

WORKERS = 3
REPLICAS = ("master-0", *(f"worker-{index}" for index in range(WORKERS)))

# What happens between two syncs: a word and the index of a replica.
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ("admit", "part", "bound", "waiting", "suspend", "resume", "runs", "ends", "told to end", "gone", "scale")
        ),
        st.integers(0, WORKERS),
    ),
    max_size=25,
)


class Play:
    """A world whose deletions take their time."""

    def __init__(self) -> None:
        self.cluster: World = world(master(), workers(WORKERS), gang={"enabled": True})
        self.cluster.gangs = GangPolicy(ON_REQUEST, "gang-scheduler")

    def sync(self) -> bool:
        """One sync, its writes checked; False if there was nothing to do."""
        cluster = self.cluster
        actions = cluster.actions()
        self._check(bool([create for create in actions.creates if create.resource.kind != "Gang"]))
        for delete in actions.deletes:
            if delete.foreground:
                self._begin_deletion(delete.name)
        cluster.carry_out(
            replace_deletes(actions, tuple(delete for delete in actions.deletes if not delete.foreground))
        )
        self._check_members()
        state = cluster.state
        result = next_status(state)
        if result.status is state.status:
            return bool(actions)
        cluster.job = cluster.kind.written(cluster.job, result.status)
        return True

    def settle(self) -> None:
        for _ in range(20):
            if not self.sync():
                return
        raise AssertionError(f"never settles: {self.cluster.actions()}")

    def _begin_deletion(self, name: str) -> None:
        job = self.cluster.jobs[name]
        going = replace(job.metadata, deletion_timestamp=format_time(self.cluster.now))
        self.cluster.jobs[name] = replace(job, metadata=going)

    def _check(self, creates: bool) -> None:
        """Children are created only in an attempt, and only when nothing of another one is left."""
        gang = self.cluster.gang
        if not creates:
            return
        assert gang is not None
        assert is_placed(gang)
        attempt = str(gang.status.attempt)
        for job in self.cluster.jobs.values():
            assert job.metadata.labels[ATTEMPT_LABEL] == attempt or job_outcome(job) == JOB_COMPLETE
        for pods in self.cluster.pods.values():
            for pod in pods:
                assert pod.metadata.labels[ATTEMPT_LABEL] == attempt or is_finished(pod)

    def _check_members(self) -> None:
        """No two replicas of an attempt have the same member, and none has one without a node when it is made."""
        gang = self.cluster.gang
        if gang is None or not is_placed(gang):
            return
        attempt = str(gang.status.attempt)
        jobs = [job for job in self.cluster.jobs.values() if job.metadata.labels[ATTEMPT_LABEL] == attempt]
        members = [job.metadata.labels[MEMBER_LABEL] for job in jobs]
        assert len(members) == len(set(members))

    def happens(self, word: str, index: int) -> None:
        cluster, gang = self.cluster, self.cluster.gang
        replica = REPLICAS[index]
        job = cluster.jobs.get(cluster.name(replica)) if self._is_wanted(replica) else None
        if word in ("suspend", "resume"):
            cluster.change(suspend=word == "suspend")
        elif word == "scale":
            cluster.change(worker_replicas=index)
        elif word == "gone":
            self.reap()
        elif word in ("runs", "ends", "told to end") and job is not None and index and _may_have_pods(job):
            self._pod(word, replica, is_going=job.metadata.deletion_timestamp is not None)
        elif gang is not None and word in ("admit", "part", "bound", "waiting"):
            self.says(word)

    def _is_wanted(self, replica: str) -> bool:
        return any(each.id == replica for each in self.cluster.plan.replicas.all)

    def _pod(self, word: str, replica: str, *, is_going: bool) -> None:
        cluster = self.cluster
        if word == "runs":
            cluster.runs(replica)
        elif word == "ends" and not is_going:
            cluster.exits(replica, 0)
            cluster.job_ends(replica, JOB_COMPLETE)
        elif word == "told to end" and is_going:
            cluster.exits(replica, 1)
            cluster.pod_deleted(replica)
            cluster.job_status(replica, failed=1)

    def says(self, word: str) -> None:
        """As far as a gang scheduler would."""
        gang = self.cluster.gang
        assert gang is not None
        members = member_ids(gang.spec)
        status = gang.status
        if gang.spec.suspend:
            status = replace(status, phase=RELEASED, placement=())
        elif word == "waiting":
            status = replace(status, phase=WAITING, placement=())
        elif word == "bound" and is_placed(gang):
            status = replace(status, phase=BOUND, placement=(NodePlacement("n1", members),))
        elif word in ("admit", "part") and not is_placed(gang):
            some = members if word == "admit" else members[: max(1, len(members) - 1)]
            status = replace(status, phase=ADMITTED, attempt=status.attempt + 1, placement=(NodePlacement("n1", some),))
        self.cluster.gang = replace(gang, status=status)

    def reap(self) -> None:
        """All that is on its way out has gone."""
        for name, job in list(self.cluster.jobs.items()):
            if job.metadata.deletion_timestamp is not None:
                self.cluster.delete_job(name)


def _may_have_pods(job: BatchJob) -> bool:
    return not job.spec.suspend and not job_outcome(job)


def replace_deletes(actions: Actions, deletes: tuple[Delete, ...]) -> Actions:
    return dataclasses.replace(actions, deletes=deletes)


@example([("admit", 0), ("ends", 1), ("waiting", 0), ("runs", 1)])
@given(steps)
def test_pods_of_two_attempts_never_coexist_and_an_undisturbed_job_becomes_complete(
    happenings: list[tuple[str, int]],
) -> None:
    play = Play()
    play.settle()
    for word, index in happenings:
        play.happens(word, index)
        play.sync()
    cluster = play.cluster
    assert cluster.job.status.phase not in ("Failed", "CleanUp")
    assert cluster.job.status.restarts == 0
    cluster.change(suspend=False)
    for _ in range(4):
        play.reap()
        play.settle()
        play.says("admit")
        play.says("bound")
    play.reap()
    play.settle()
    gang = cluster.gang
    assert gang is not None
    assert is_placed(gang)
    due = [each for each in cluster.plan.replicas.all if each.id not in cluster.job.status.succeeded_indexes]
    for replica in due:
        job = cluster.jobs[replica.name]
        assert job.metadata.labels[ATTEMPT_LABEL] == str(gang.status.attempt)
        assert job.metadata.labels[MEMBER_LABEL] in placed_nodes(gang.status)
