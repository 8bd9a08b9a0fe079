"""The rules of controller/handlers.py: which change queues which job, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.fakeclock import FakeClock
from helpers.poll import eventually
from tfjob_controller.api.common.core import BatchJob, JobStatus, Pod, PodAnnotations, PodMeta, PodStatus, Service
from tfjob_controller.api.gang import Gang, GangStatus
from tfjob_controller.api.tfjob.status import TFJobStatus
from tfjob_controller.api.tfjob.types import TFJOBS, TFJob, TFJobSpec
from tfjob_controller.controller.handlers import (
    BATCH_SECONDS,
    HIGH,
    LOW,
    NORMAL,
    ChildHandler,
    JobHandler,
    identity_matters,
    keys_by_owner,
    keys_by_runtime,
    pod_matters,
    state_matters,
)
from tfjob_controller.controller.snapshot import BY_RUNTIME
from tfjob_controller.kinds.tfjob.kind import tfjob_by_runtime_id
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import ObjectMeta, OwnerReference
from tfjob_controller.kube.workqueue.queue import RateLimiter, RateLimitingQueue

OWNER = OwnerReference("kubeflow.org/v1alpha1", "TFJob", "train", "u1", controller=True)
META = ObjectMeta(name="train-worker-ab12-0", namespace="team", uid="u2", owner_references=(OWNER,))
TRAIN = TFJob(
    ObjectMeta(name="train", namespace="team", uid="u1"), TFJobSpec(runtime_id="ab12"), TFJobStatus("Running")
)

Queue = RateLimitingQueue[str]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queue(clock: FakeClock) -> Iterator[Queue]:
    made: Queue = RateLimitingQueue(clock, RateLimiter(1.0, 60.0))
    yield made
    made.shut_down()


def service_handler(queue: Queue) -> ChildHandler[Any]:
    return ChildHandler(queue, keys_by_owner(TFJOBS), identity_matters)


def test_a_child_that_comes_in_no_swarm_may_queue_its_job_at_once(queue: Queue) -> None:
    handler: ChildHandler[Gang] = ChildHandler(queue, keys_by_owner(TFJOBS), state_matters, batch_seconds=0.0)
    gang = Gang(META)
    handler.on_update(gang, replace(gang, metadata=replace(META, resource_version="2")))
    assert len(queue) == 0
    handler.on_update(gang, replace(gang, status=GangStatus(phase="Admitted")))
    assert queue.get() == "team/train"


def is_new(job: TFJob) -> bool:
    return not job.status.phase


def test_a_job_that_nobody_has_seen_is_as_urgent_as_a_live_one(queue: Queue) -> None:
    handler: JobHandler[TFJob] = JobHandler(queue, is_new)
    for name, phase in (("old", "Running"), ("unseen", "")):
        job = TFJob(ObjectMeta(name=name, namespace="team"), status=TFJobStatus(phase))
        handler.on_add(job, is_initial=True)
    assert [queue.get(), queue.get()] == ["team/unseen", "team/old"]


def test_a_live_job_overtakes_the_initial_list(queue: Queue) -> None:
    handler: JobHandler[TFJob] = JobHandler(queue, is_new)
    handler.on_add(TRAIN, is_initial=True)
    handler.on_add(replace(TRAIN, metadata=ObjectMeta(name="new", namespace="team")), is_initial=False)
    assert [queue.get(), queue.get()] == ["team/new", "team/train"]


@pytest.mark.parametrize(
    ("phase", "generation", "expected"),
    [
        pytest.param("Running", 2, HIGH, id="a user changes the spec of a job that runs"),
        pytest.param("Running", 1, NORMAL, id="its status was written"),
        pytest.param("", 2, NORMAL, id="its names are written into the spec of a new job"),
    ],
)
def test_how_urgent_a_change_of_a_job_is(queue: Queue, phase: str, generation: int, expected: int) -> None:
    handler: JobHandler[TFJob] = JobHandler(queue, is_new)
    job = TFJob(ObjectMeta(name="train", namespace="team", generation=1), status=TFJobStatus(phase))
    handler.on_update(job, replace(job, metadata=replace(job.metadata, generation=generation)))
    assert queue.priority_of(queue.get()) == expected


def test_a_child_that_has_gone_is_urgent_and_one_that_comes_is_not(queue: Queue) -> None:
    handler: ChildHandler[Any] = ChildHandler(queue, keys_by_owner(TFJOBS), identity_matters, batch_seconds=0.0)
    for change, expected in (
        (lambda: handler.on_add(Service(META), is_initial=True), LOW),
        (lambda: handler.on_add(Service(META), is_initial=False), NORMAL),
        (lambda: handler.on_update(Service(META), Service(GOING)), HIGH),
        (lambda: handler.on_delete(Service(META), final=True), HIGH),
    ):
        change()
        key = queue.get()
        assert queue.priority_of(key) == expected
        queue.done(key)


def test_every_change_of_a_job_queues_it_but_the_same_object_again_does_not(queue: Queue) -> None:
    handler: JobHandler[TFJob] = JobHandler(queue, is_new)
    handler.on_update(TRAIN, TRAIN)
    assert len(queue) == 0
    handler.on_update(TRAIN, replace(TRAIN, spec=TFJobSpec()))
    assert queue.get() == "team/train"
    queue.done("team/train")
    handler.on_delete(TRAIN, final=True)
    assert queue.get() == "team/train"


def test_children_that_start_together_queue_their_job_once_and_together(queue: Queue, clock: FakeClock) -> None:
    handler = service_handler(queue)
    for number in range(20):
        handler.on_add(Service(replace(META, name=f"train-worker-ab12-{number}")), is_initial=False)
    assert len(queue) == 0
    clock.await_waiters(1)
    clock.advance(BATCH_SECONDS)
    eventually(lambda: len(queue) == 1)
    assert queue.get() == "team/train"


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param((replace(OWNER, controller=None),), id="an owner that does not control it"),
        pytest.param((replace(OWNER, api_version="other.org/v1"),), id="another group's TFJob"),
    ],
)
def test_what_no_job_controls_queues_nothing(queue: Queue, owners: tuple[OwnerReference, ...]) -> None:
    service_handler(queue).on_add(Service(replace(META, owner_references=owners)), is_initial=False)
    assert queue.statistics().delayed == len(queue) == 0


def queued_after(queue: Queue, clock: FakeClock) -> set[str]:
    """What a swarm of changes has queued, once its time is over."""
    wanted = queue.statistics().delayed
    if wanted:
        clock.await_waiters(1)
    clock.advance(BATCH_SECONDS)
    eventually(lambda: len(queue) == wanted)
    return {queue.get() for _ in range(wanted)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((OWNER,), (), id="taken away"),
        pytest.param((OWNER,), (replace(OWNER, name="other", uid="u9"),), id="given to another"),
        pytest.param((), (OWNER,), id="given to it"),
    ],
)
def test_a_child_that_changes_hands_queues_both_jobs(
    queue: Queue, clock: FakeClock, before: tuple[OwnerReference, ...], after: tuple[OwnerReference, ...]
) -> None:
    old, new = (Service(replace(META, owner_references=owners)) for owners in (before, after))
    service_handler(queue).on_update(old, new)
    assert queued_after(queue, clock) == {f"team/{owner.name}" for owner in (*before, *after)}


def test_a_pod_of_jobs_that_share_a_runtime_id_queues_them_all(queue: Queue, clock: FakeClock) -> None:
    """As when somebody copies a running job's manifest under another name."""
    jobs: Store[TFJob] = Store({BY_RUNTIME: tfjob_by_runtime_id})
    for version, name in enumerate(("copy", "train", "zebra"), 5):
        jobs.upsert(replace(TRAIN, metadata=replace(TRAIN.metadata, name=name, resource_version=str(version))))
    pod = Pod(PodMeta(name="p", namespace="team", labels={"runtime_id": "ab12"}))
    ChildHandler(queue, keys_by_runtime(jobs), state_matters).on_add(pod, is_initial=False)
    assert queued_after(queue, clock) == {"team/copy", "team/train", "team/zebra"}


def test_the_steps_that_a_pod_says_matter_and_its_other_metadata_does_not() -> None:
    meta = PodMeta(name="p", namespace="team", resource_version="1")
    assert pod_matters(Pod(meta), Pod(replace(meta, annotations=PodAnnotations("7"))))
    assert not pod_matters(Pod(meta), Pod(replace(meta, resource_version="2")))


@pytest.mark.parametrize(
    ("namespace", "labels", "expected"),
    [
        pytest.param("team", {"runtime_id": "ab12"}, ["team/train"], id="its job's label"),
        pytest.param("team", {"runtime_id": "zz99"}, [], id="a job that is not there"),
        pytest.param("team", {}, [], id="no label"),
        pytest.param("other", {"runtime_id": "ab12"}, [], id="another namespace"),
    ],
)
def test_a_pod_is_found_by_its_jobs_runtime_id(namespace: str, labels: dict[str, str], expected: list[str]) -> None:
    jobs: Store[TFJob] = Store({BY_RUNTIME: tfjob_by_runtime_id})
    jobs.upsert(replace(TRAIN, metadata=replace(TRAIN.metadata, resource_version="5")))
    pod = Pod(PodMeta(name="p", namespace=namespace, labels=labels))
    assert [*keys_by_runtime(jobs)(pod)] == expected


HEARTBEAT = replace(META, resource_version="9", labels={"a": "b"})
GOING = replace(META, deletion_timestamp="2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("matters", "old", "new", "expected"),
    [
        pytest.param(identity_matters, Service(META), Service(HEARTBEAT), False, id="a service's labels"),
        pytest.param(identity_matters, Service(META), Service(GOING), True, id="a service that goes"),
        pytest.param(
            identity_matters, Service(META), Service(replace(META, owner_references=())), True, id="a released service"
        ),
        pytest.param(state_matters, BatchJob(META), BatchJob(HEARTBEAT), False, id="a job's labels"),
        pytest.param(
            state_matters, BatchJob(META), BatchJob(META, status=JobStatus(active=1)), True, id="a job's status"
        ),
        pytest.param(state_matters, Pod(META), Pod(HEARTBEAT), False, id="a pod's labels"),
        pytest.param(state_matters, Pod(META), Pod(META, status=PodStatus("Running")), True, id="a pod's phase"),
    ],
)
def test_which_changes_of_children_matter(matters: Any, old: Any, new: Any, expected: bool) -> None:
    assert matters(old, new) is expected
