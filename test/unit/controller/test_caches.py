"""The rules of controller/caches.py."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.answering import Answering
from helpers.poll import eventually
from tfjob_controller.api.common.core import JOBS, PODS, BatchJob, Condition, JobStatus, Pod, PodMeta, PodStatus
from tfjob_controller.api.gang import GANGS, Gang, GangStatus
from tfjob_controller.api.tfjob.types import TFJOBS, TFJob, TFJobSpec
from tfjob_controller.controller.caches import ControllerCaches
from tfjob_controller.controller.handlers import HIGH
from tfjob_controller.kinds.tfjob.kind import TFJobCaches
from tfjob_controller.kube.meta import ObjectMeta, OwnerReference, Resource
from tfjob_controller.kube.workqueue.queue import RateLimiter, RateLimitingQueue
from tfjob_controller.util.clock import RealClock

KINDS = 6


class _Lines:
    """Silent until all streams were closed."""

    def __init__(self, closed: threading.Barrier) -> None:
        self._all_closed = closed
        self._closer: threading.Thread | None = None

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        self._all_closed.wait()
        return iter(())

    def close(self) -> None:
        if self._closer is None:
            self._closer = threading.Thread(target=self._all_closed.wait)
            self._closer.start()


class Streams(Answering):
    """Its streams end only when all of them were closed."""

    def __init__(self, kinds: int = KINDS) -> None:
        super().__init__()
        self._all_closed = threading.Barrier(2 * kinds, timeout=30)
        self.opened = 0

    def stream(self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float) -> _Lines:
        self.opened += 1
        return _Lines(self._all_closed)


def test_all_caches_are_stopped_before_any_is_waited_for() -> None:
    streams = Streams()
    caches = ControllerCaches(streams, "", RealClock())
    caches.informers.start()
    eventually(lambda: streams.opened == KINDS, 10)
    assert caches.informers.stop(10.0)


def test_without_gangs_no_gangs_are_requested() -> None:
    streams = Streams(KINDS - 1)
    caches = ControllerCaches(streams, "", RealClock(), gangs=False)
    caches.informers.start()
    eventually(lambda: streams.opened == KINDS - 1, 10)
    assert caches.informers.stop(10.0)
    assert "gangs" not in caches.informers.statistics()


OWNER = OwnerReference("kubeflow.org/v1alpha1", "TFJob", "train", "u1", controller=True)
META = ObjectMeta(name="a", namespace="team", uid="u2", resource_version="2", owner_references=(OWNER,))
LATER = replace(META, resource_version="3")
POD_META = PodMeta(name="a", namespace="team", uid="u2", resource_version="2", labels={"runtime_id": "ab12"})


@pytest.fixture
def queue() -> Iterator[RateLimitingQueue[str]]:
    made: RateLimitingQueue[str] = RateLimitingQueue(RealClock(), RateLimiter(1.0, 60.0))
    yield made
    made.shut_down()


@pytest.fixture
def tfjobs() -> TFJobCaches:
    return TFJobCaches(Streams(), "", RealClock())


@pytest.fixture
def running(queue: RateLimitingQueue[str], tfjobs: TFJobCaches) -> Iterator[ControllerCaches]:
    """Caches that feed the queue, and hear nothing from a server."""
    streams = Streams()
    caches = ControllerCaches(streams, "", RealClock())
    caches.feed(TFJOBS, tfjobs.jobs.store, queue)
    caches.informers.start()
    # Their streams end only together.
    eventually(lambda: streams.opened == KINDS)
    yield caches
    assert caches.informers.stop(60.0)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        pytest.param(
            PODS,
            Pod(POD_META, status=PodStatus("Running")),
            Pod(replace(POD_META, resource_version="3"), status=PodStatus("Failed")),
            id="a pod failed",
        ),
        pytest.param(
            JOBS,
            BatchJob(META),
            BatchJob(LATER, status=JobStatus(conditions=(Condition("Complete", "True"),))),
            id="a child Job is complete",
        ),
        pytest.param(GANGS, Gang(META), Gang(LATER, status=GangStatus(phase="Admitted")), id="a gang was admitted"),
    ],
)
def test_what_turns_a_job_makes_it_urgent(
    running: ControllerCaches,
    tfjobs: TFJobCaches,
    queue: RateLimitingQueue[str],
    kind: Resource[Any],
    old: Any,
    new: Any,
) -> None:
    train = ObjectMeta(name="train", namespace="team", uid="u1", resource_version="1")
    tfjobs.jobs.store.upsert(TFJob(train, TFJobSpec(runtime_id="ab12")))
    store = running.store(kind)
    store.upsert(old)
    store.upsert(new)
    eventually(lambda: HIGH in priorities(queue))


def priorities(queue: RateLimitingQueue[str]) -> set[int]:
    """Of all that is queued, which is taken."""
    found = set()
    while len(queue):
        key = queue.get()
        found.add(queue.priority_of(key))
        queue.done(key)
    return found
