"""The rules of kinds/runtimes.py: which jobs a new runtime queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.fakeclock import FakeClock
from helpers.memoryapi import MemoryApi
from helpers.trainmanifests import trainjob
from helpers.trainworld import decoded_train
from tfjob_controller.api.trainjob.runtime import TrainingRuntime
from tfjob_controller.api.trainjob.types import CLUSTER_RUNTIME, NAMESPACED_RUNTIME, TrainJob, TrainJobStatus
from tfjob_controller.controller.handlers import RuntimeHandler
from tfjob_controller.kinds.runtimes import RuntimeCaches
from tfjob_controller.kinds.trainjob.kind import RUNTIMES
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.kube.workqueue.queue import RateLimiter, RateLimitingQueue

Queue = RateLimitingQueue[str]
OURS = TrainingRuntime(ObjectMeta(name="mine", namespace="ns", uid="u1", resource_version="1"))
THEIRS = replace(OURS, metadata=replace(OURS.metadata, namespace=""))


@pytest.fixture
def queue() -> Iterator[Queue]:
    made: Queue = RateLimitingQueue(FakeClock(), RateLimiter(1.0, 60.0))
    yield made
    made.shut_down()


def job(name: str, kind: str = CLUSTER_RUNTIME, *, ref: str = "mine", namespace: str = "ns", **status: Any) -> TrainJob:
    manifest = trainjob(name, runtimeRef={"name": ref, "kind": kind}) if ref else trainjob(name)
    made = decoded_train(manifest, uid=f"uid-{name}", resourceVersion="1", namespace=namespace)
    return replace(made, status=TrainJobStatus(**status))


def queued(queue: Queue) -> set[str]:
    found = set()
    while len(queue):
        key = queue.get()
        assert key is not None
        found.add(key)
        queue.done(key)
    return found


def handler(queue: Queue, *jobs: TrainJob) -> RuntimeHandler[TrainJob]:
    store: Store[TrainJob] = Store()
    for each in jobs:
        store.upsert(each)
    return RuntimeHandler(queue, store, RuntimeCaches(RUNTIMES, MemoryApi(), "", FakeClock()).waits_for)


def test_jobs_that_name_a_new_runtime_and_have_not_started_are_looked_at_again(queue: Queue) -> None:
    waiting = job("waiting", phase="Creating")
    told = handler(
        queue,
        waiting,
        job("fresh"),
        job("started", phase="Running", start_time="2026-01-01T00:00:00Z"),
        job("another", ref="other"),
        job("without", ref=""),
        job("of-the-namespace", NAMESPACED_RUNTIME),
    )
    told.on_add(THEIRS, is_initial=False)
    assert queued(queue) == {"ns/waiting", "ns/fresh"}


def test_a_runtime_that_was_there_before_us_is_no_news(queue: Queue) -> None:
    """All jobs are looked at then anyway."""
    handler(queue, job("fresh")).on_add(THEIRS, is_initial=True)
    assert queued(queue) == set()


def test_a_corrected_runtime_is_used(queue: Queue) -> None:
    told = handler(queue, job("fresh"))
    told.on_update(THEIRS, THEIRS)
    assert queued(queue) == set()
    told.on_update(THEIRS, replace(THEIRS, metadata=replace(THEIRS.metadata, resource_version="2")))
    assert queued(queue) == {"ns/fresh"}


def test_one_that_goes_takes_nothing_from_those_that_run(queue: Queue) -> None:
    handler(queue, job("fresh")).on_delete(THEIRS, final=True)
    assert queued(queue) == set()


def test_a_runtime_of_a_namespace_is_news_for_the_jobs_there_alone(queue: Queue) -> None:
    told = handler(
        queue,
        job("here", NAMESPACED_RUNTIME),
        job("elsewhere", NAMESPACED_RUNTIME, namespace="other"),
    )
    told.on_add(OURS, is_initial=False)
    assert queued(queue) == {"ns/here"}
