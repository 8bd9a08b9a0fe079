"""The rules of controller/workers.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import structlog

from helpers.fakeclock import FakeClock
from helpers.poll import eventually
from tfjob_controller.controller.handlers import HIGH, LOW, NORMAL
from tfjob_controller.controller.outcome import DONE, NOT_FOUND, Outcome, RequeueAfter, Retry, TerminalFailure
from tfjob_controller.controller.workers import Workers
from tfjob_controller.kube import trace
from tfjob_controller.kube.workqueue.queue import QueueStatistics, RateLimiter, RateLimitingQueue


class Results:
    """A SyncObserver that remembers."""

    def __init__(self) -> None:
        self.results: list[str] = []
        self.active = 0
        self.count = 0

    def workers_started(self, controller: str, count: int) -> None:
        self.count = count

    def sync_started(self, controller: str) -> None:
        self.active += 1

    def sync_finished(self, controller: str, result: str, seconds: float) -> None:
        self.active -= 1
        self.results.append(result)


Queue = RateLimitingQueue[str]
Start = Callable[[Callable[[str], Outcome]], Workers]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queue(clock: FakeClock) -> Queue:
    return RateLimitingQueue(clock, RateLimiter(1.0, 60.0))


@pytest.fixture
def results() -> Results:
    return Results()


@pytest.fixture
def start(clock: FakeClock, queue: Queue, results: Results) -> Iterator[Start]:
    started: list[Workers] = []

    def make(sync: Callable[[str], Outcome]) -> Workers:
        workers = Workers("test", queue, sync, count=2, clock=clock, observer=results)
        workers.start()
        started.append(workers)
        return workers

    yield make
    for workers in started:
        assert workers.stop(10.0)
    names = [thread.name for thread in threading.enumerate()]
    assert [name for name in names if name.startswith("test-worker")] == []


@pytest.mark.parametrize(
    ("outcome", "result", "failures", "delayed"),
    [
        pytest.param(DONE, "success", 0, 0, id="done"),
        pytest.param(RequeueAfter(5.0), "requeue_after", 0, 1, id="requeue after"),
        pytest.param(Retry("quota"), "requeue", 2, 1, id="retry"),
        pytest.param(Retry("down", is_error=True), "error", 2, 1, id="retry after a fault"),
        pytest.param(Retry("busy", after_seconds=9.0), "requeue", 2, 1, id="retry when the server says so"),
        pytest.param(TerminalFailure("invalid"), "terminal", 0, 0, id="give up"),
    ],
)
def test_what_follows_an_outcome(
    queue: Queue, results: Results, start: Start, outcome: Outcome, result: str, failures: int, delayed: int
) -> None:
    queue.add_rate_limited("a")  # one failure before
    queue.add("a")
    start(lambda key: outcome)
    eventually(lambda: results.results)
    eventually(lambda: queue.statistics().processing == 0)
    assert results.results[0] == result
    assert queue.num_requeues("a") == failures
    # The wait of the first failure is still there in each case, and is one with a later one.
    assert queue.statistics().delayed == 1
    assert results.active == 0
    assert results.count == 2


def test_a_server_that_asks_to_wait_again_and_again_is_warned_about_once(
    queue: Queue, results: Results, start: Start
) -> None:
    queue.add("a")
    with structlog.testing.capture_logs() as lines:
        start(lambda key: Retry("busy", after_seconds=9.0))
        eventually(lambda: len(results.results) == 1 and queue.statistics().processing == 0)
        queue.add("a")
        eventually(lambda: len(results.results) == 2)
    retried = [(line["log_level"], line["failures"]) for line in lines if line["event"] == "sync will be retried"]
    assert retried == [("warning", 1), ("debug", 2)]


def test_each_sync_has_an_id_of_its_own_for_its_lines_and_its_requests(queue: Queue, start: Start) -> None:
    seen: list[tuple[str, str, str]] = []

    def sync(key: str) -> Outcome:
        bound, work = structlog.contextvars.get_contextvars(), trace.current()
        assert work is not None
        seen.append((bound["key"], bound["reconcile_id"], work.id))
        return DONE

    for key in ("a", "b"):
        queue.add(key)
    start(sync)
    eventually(lambda: len(seen) == 2)
    assert {key for key, _, _ in seen} == {"a", "b"}
    assert all(logged == sent for _, logged, sent in seen)
    assert len({logged for _, logged, _ in seen}) == 2


def test_a_key_is_looked_at_again_when_its_time_has_come(queue: Queue, clock: FakeClock, start: Start) -> None:
    seen: list[str] = []

    def sync(key: str) -> Outcome:
        seen.append(key)
        return RequeueAfter(30.0)

    start(sync)
    queue.add("a")
    eventually(lambda: seen == ["a"] and queue.statistics().delayed == 1)
    clock.advance(29.0)
    assert seen == ["a"]
    clock.advance(1.0)
    eventually(lambda: seen == ["a", "a"])


@pytest.mark.parametrize(
    ("priority", "outcome", "expected"),
    [
        pytest.param(HIGH, Retry("down", is_error=True), HIGH, id="what failed is as urgent as before"),
        pytest.param(HIGH, Retry("busy", after_seconds=2.0), HIGH, id="also where the server says when"),
        pytest.param(LOW, Retry("down", is_error=True), LOW, id="and what is not urgent does not become so"),
        pytest.param(NORMAL, RequeueAfter(0.0), HIGH, id="the second half of what is half done is urgent"),
        pytest.param(HIGH, RequeueAfter(2.0), NORMAL, id="what can rest is not"),
    ],
)
def test_how_urgent_the_next_look_is(
    queue: Queue, clock: FakeClock, start: Start, priority: int, outcome: Outcome, expected: int
) -> None:
    found: list[int] = []

    def sync(key: str) -> Outcome:
        found.append(queue.priority_of(key))
        return outcome if len(found) == 1 else DONE

    queue.add("a", priority)
    start(sync)
    eventually(lambda: len(found) == 2 or queue.statistics().delayed == 1)
    clock.advance(2.0)
    eventually(lambda: found == [priority, expected])


def test_a_deadline_wakes_a_key_that_is_delayed(queue: Queue, clock: FakeClock, results: Results, start: Start) -> None:
    seen: list[str] = []

    def sync(key: str) -> Outcome:
        seen.append(key)
        return Retry("quota", after_seconds=60.0, wake_after_seconds=5.0)

    start(sync)
    queue.add("a")
    # Once the sync is over both times are set; a look at the queue would also see the first alone.
    eventually(lambda: len(results.results) == 1)
    clock.advance(5.0)
    eventually(lambda: len(seen) == 2)


def test_a_job_that_is_gone_is_not_looked_at_again(queue: Queue, clock: FakeClock, start: Start) -> None:
    looked: list[str] = []

    def sync(key: str) -> Outcome:
        looked.append(key)
        return RequeueAfter(1e6) if len(looked) == 1 else NOT_FOUND

    start(sync)
    queue.add("a")
    eventually(lambda: queue.statistics().delayed == 1)
    queue.add("a")
    eventually(lambda: len(looked) == 2 and queue.statistics() == QueueStatistics(0, 0, 0, 0, is_shutting_down=False))


def test_a_sync_that_raises_costs_only_its_own_key(queue: Queue, results: Results, start: Start) -> None:
    def sync(key: str) -> Outcome:
        if key == "bad":
            raise KeyError("a bug")
        return DONE

    workers = start(sync)
    queue.add("bad")
    queue.add("good")
    eventually(lambda: sorted(results.results) == ["panic", "success"])
    assert queue.num_requeues("bad") == 1
    assert set(workers.restarts().values()) == {0}


def test_a_worker_that_dies_gives_its_key_back_and_is_started_again(
    queue: Queue, clock: FakeClock, results: Results
) -> None:
    class Broken(Results):
        def sync_started(self, controller: str) -> None:
            if not self.results:
                self.results.append("broken")
                raise RuntimeError("a bug outside of the sync")

    broken = Broken()
    workers = Workers("test", queue, lambda key: DONE, count=1, clock=clock, observer=broken)
    workers.start()
    queue.add("a")
    eventually(lambda: workers.restarts() == {"test-worker-0": 1})
    assert queue.statistics().processing == 0
    clock.await_waiters(1)
    clock.advance(5.0)
    queue.add("a")
    eventually(lambda: broken.results == ["broken", "success"])
    assert workers.stop(10.0)


def test_stop_finishes_the_sync_in_progress_and_begins_no_other(queue: Queue, results: Results, start: Start) -> None:
    begun, may_end = threading.Semaphore(0), threading.Event()
    seen: list[str] = []

    def sync(key: str) -> Outcome:
        seen.append(key)
        begun.release()
        may_end.wait(10)
        return DONE

    workers = start(sync)
    for number in range(10):
        queue.add(f"key-{number}")
    assert begun.acquire(timeout=10)
    assert begun.acquire(timeout=10)
    stopper = threading.Thread(target=workers.stop, args=(10.0,))
    stopper.start()
    eventually(lambda: queue.is_shutting_down)
    may_end.set()
    stopper.join(10)
    assert len(seen) == 2
    assert results.results == ["success", "success"]
