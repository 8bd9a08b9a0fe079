"""The rules of kube/workqueue/queue.py on threads, memory, groups and metrics.

What an item goes through, in which order and when, is in test/property/test_workqueue.py.
"""

import contextlib
import threading
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from weakref import ReferenceType, ref

import pytest

from helpers.fakeclock import FakeClock
from helpers.poll import eventually
from tfjob_controller.kube.flowcontrol import TokenBuckets
from tfjob_controller.kube.workqueue.queue import QueueStatistics, RateLimiter, RateLimitingQueue, ShutDown
from tfjob_controller.telemetry.metrics import Metrics
from tfjob_controller.util.clock import RealClock

Queue = RateLimitingQueue[str]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queue(clock: FakeClock) -> Iterator[Queue]:
    queue: Queue = RateLimitingQueue(clock, RateLimiter(1.0, 1000.0))
    yield queue
    queue.shut_down()


@pytest.fixture
def background() -> Iterator[Callable[[Callable[[], object]], Future[object]]]:
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


Background = Callable[[Callable[[], object]], "Future[object]"]


def take_all(queue: Queue) -> list[str]:
    """Everything that is queued now, in its order."""
    taken = []
    while len(queue):
        taken.append(queue.get())
        queue.done(taken[-1])
    return taken


def move(clock: FakeClock, seconds: float) -> None:
    """Move the time and let the delaying queue's thread see it."""
    clock.await_waiters(1)
    clock.advance(seconds)
    clock.await_waiters(1)


class Key(str):
    """An item that can be watched: does the queue still hold it?"""


def still_held(keys: list[ReferenceType[Key]]) -> int:
    return sum(key() is not None for key in keys)


class TestWorkQueue:
    def test_each_waiting_worker_gets_an_item(self, queue: Queue, background: Background) -> None:
        answers = [background(queue.get) for _ in range(4)]
        for item in "abcd":
            queue.add(item)
        assert sorted(str(answer.result(60)) for answer in answers) == ["a", "b", "c", "d"]

    def test_done_wakes_a_worker_for_an_item_that_became_dirty(self, queue: Queue, background: Background) -> None:
        queue.add("a")
        queue.get()
        queue.add("a")
        answer = background(queue.get)
        queue.done("a")
        assert answer.result(60) == "a"


class TestPriority:
    def test_raising_an_item_repeatedly_uses_bounded_memory(self) -> None:
        queue = RateLimitingQueue[str](FakeClock(), RateLimiter(1.0, 60.0))
        queue.add("lowest", -200)
        held: list[ReferenceType[Key]] = []
        for _ in range(300):
            key = Key("a")
            held.append(ref(key))
            queue.add(key, -100)
            queue.add(key, 0)
            del key
            queue.done(queue.get())
            queue.add("lowest", -200)
        assert still_held(held) < 100
        assert set(take_all(queue)) <= {"a", "lowest"}

    def test_of_an_item_that_is_processed_it_is_known_with_which_priority_it_was_given_out(self, queue: Queue) -> None:
        queue.add("a", 5)
        assert queue.priority_of("a") == 0
        queue.get()
        queue.add("a", 7)
        assert queue.priority_of("a") == 5
        queue.done("a")
        queue.get()
        assert queue.priority_of("a") == 7
        queue.done("a")
        assert queue.priority_of("a") == 0


class TestShutDown:
    def test_it_wakes_every_waiting_worker(self, queue: Queue, background: Background) -> None:
        answers = [background(queue.get) for _ in range(4)]
        queue.shut_down()
        for answer in answers:
            with pytest.raises(ShutDown):
                answer.result(60)


class TestDelayingQueue:
    def test_an_item_with_a_far_time_that_is_repeatedly_added_uses_bounded_memory(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        held: list[ReferenceType[Key]] = []
        for _ in range(300):  # a job with a deadline in two weeks, whose pods come and go
            far, soon = Key("a"), Key("a")
            held += [ref(far), ref(soon)]
            queue.add_after(far, 1e6)
            queue.add_after(soon, 1.0)
            del far, soon
            move(clock, 1.0)
            assert take_all(queue) == ["a"]
        assert still_held(held) < 100

    def test_an_item_that_is_taken_back_does_not_come_and_others_do(self, queue: Queue, clock: FakeClock) -> None:
        for item in ("a", "b"):
            queue.add_after(item, 5.0)
        queue.cancel("a")
        queue.cancel("never seen")
        assert queue.statistics().delayed == 1
        move(clock, 5.0)
        assert take_all(queue) == ["b"]
        queue.add_after("a", 5.0)
        move(clock, 5.0)
        assert take_all(queue) == ["a"]

    def test_taking_back_leaves_what_is_queued_already(self, queue: Queue) -> None:
        queue.add_after("a", 5.0)
        queue.add("a")
        queue.cancel("a")
        assert take_all(queue) == ["a"]

    def test_items_that_are_taken_back_use_no_memory(self, queue: Queue) -> None:
        held: list[ReferenceType[Key]] = []
        for number in range(1000):  # jobs with a far deadline that are deleted before
            key = Key(f"job-{number}")
            held.append(ref(key))
            queue.add_after(key, 1e6)
            queue.cancel(key)
            del key
        assert still_held(held) < 100

    def test_it_has_one_thread_which_starts_when_needed_and_ends_with_it(self, clock: FakeClock) -> None:
        def threads() -> list[str]:
            return [thread.name for thread in threading.enumerate() if thread.name == "queue-pods"]

        queue = RateLimitingQueue[str](clock, RateLimiter(1.0, 60.0), name="pods")
        queue.add("a")
        queue.done(queue.get())
        assert threads() == []
        queue.add_after("b", 1.0)
        queue.add_after("c", 1.0)
        assert threads() == ["queue-pods"]
        queue.shut_down()
        assert threads() == []

    def test_what_is_added_for_an_earlier_time_wakes_the_thread(self) -> None:
        clock = FakeClock(is_strict=True)
        queue: Queue = RateLimitingQueue(clock, RateLimiter(1.0, 60.0))
        queue.add_after("never", 3600.0)
        clock.await_waiters(1)
        queue.add_after("b", 4.0)
        queue.add_after("a", 2.0)
        for item in ("a", "b"):
            clock.advance(2.0)
            assert queue.get() == item
        queue.shut_down()


class TestRateLimitingQueue:
    def test_those_of_one_group_delay_no_item_of_another(self, clock: FakeClock) -> None:
        limiter = RateLimiter(0.005, 1000.0, TokenBuckets(10.0, 100, clock))
        queue = RateLimitingQueue[str](clock, limiter, group_of=lambda item: item.partition("/")[0])
        for item in range(300):
            queue.add_rate_limited(f"hostile/{item}")
        queue.add_rate_limited("team/train")
        move(clock, 0.005)
        taken = take_all(queue)
        queue.shut_down()
        assert "team/train" in taken


class TestMetrics:
    """By the provider of the program, whose names are client-go's."""

    @pytest.fixture
    def metrics(self) -> Metrics:
        return Metrics()

    @pytest.fixture
    def measured(self, clock: FakeClock, metrics: Metrics) -> Iterator[Queue]:
        queue: Queue = RateLimitingQueue(clock, RateLimiter(1.0, 60.0), name="jobs", metrics=metrics.queues)
        yield queue
        queue.shut_down()

    def values(self, metrics: Metrics, *names: str) -> tuple[float | None, ...]:
        return tuple(metrics.registry.get_sample_value(f"workqueue_{name}", {"name": "jobs"}) for name in names)

    def test_depth_and_adds_count_what_was_not_merged(self, measured: Queue, metrics: Metrics) -> None:
        for item in "aab":
            measured.add(item)
        assert self.values(metrics, "adds_total", "depth") == (2, 2)
        measured.get()
        measured.add("a")
        assert self.values(metrics, "adds_total", "depth") == (3, 2)

    def test_latency_runs_from_the_first_add_to_get_and_work_from_get_to_done(
        self, measured: Queue, metrics: Metrics, clock: FakeClock
    ) -> None:
        measured.add("a")
        clock.advance(2.0)
        measured.add("a")
        clock.advance(1.0)
        measured.get()
        clock.advance(5.0)
        measured.done("a")
        assert self.values(metrics, "queue_duration_seconds_sum", "queue_duration_seconds_count") == (3.0, 1)
        assert self.values(metrics, "work_duration_seconds_sum", "work_duration_seconds_count") == (5.0, 1)

    def test_latency_of_an_item_added_while_processed_runs_from_that_add(
        self, measured: Queue, metrics: Metrics, clock: FakeClock
    ) -> None:
        measured.add("a")
        measured.get()
        clock.advance(1.0)
        measured.add("a")
        clock.advance(2.0)
        measured.done("a")
        measured.get()
        assert self.values(metrics, "queue_duration_seconds_sum", "queue_duration_seconds_count") == (2.0, 2)

    def test_unfinished_work_grows_while_workers_work(
        self, measured: Queue, metrics: Metrics, clock: FakeClock
    ) -> None:
        names = "unfinished_work_seconds", "longest_running_processor_seconds"
        measured.add("a")
        measured.add("b")
        measured.get()
        move(clock, 3.0)
        measured.get()
        move(clock, 1.0)
        assert self.values(metrics, *names) == (5.0, 4.0)
        measured.done("a")
        measured.done("b")
        move(clock, 1.0)
        assert self.values(metrics, *names) == (0.0, 0.0)

    def test_unfinished_work_is_looked_at_twice_a_second(self, metrics: Metrics) -> None:
        clock = FakeClock(is_strict=True)
        queue: Queue = RateLimitingQueue(clock, RateLimiter(1.0, 60.0), name="jobs", metrics=metrics.queues)
        queue.add("a")
        queue.get()
        for seconds, shown in ((0.4, 0.0), (0.1, 0.5)):
            clock.await_waiters(1)
            clock.advance(seconds)
            clock.await_waiters(1)
            assert self.values(metrics, "unfinished_work_seconds") == (shown,)
        queue.shut_down()

    def test_retries_count_adds_with_a_delay_also_with_none(self, measured: Queue, metrics: Metrics) -> None:
        measured.add_rate_limited("a")
        measured.add_after("b", 5.0)
        measured.add_after("c", 0.0)
        measured.add("d")
        assert self.values(metrics, "retries_total") == (3,)


class TestUnderLoad:
    def test_no_item_is_ever_with_two_workers_and_no_add_is_lost(self) -> None:
        load = Load(items=20, changes=300)
        with ThreadPoolExecutor(8) as pool:
            workers = [pool.submit(load.work) for _ in range(4)]
            for producer in [pool.submit(load.produce, first, 4) for first in range(4)]:
                producer.result(60)
            eventually(lambda: load.seen == load.state)
            load.queue.shut_down()
            for worker in workers:
                worker.result(60)
        assert load.overlaps == []


class Load:
    """Producers that change a state and add its key, and workers that read it."""

    def __init__(self, items: int, changes: int) -> None:
        self.queue: RateLimitingQueue[int] = RateLimitingQueue(RealClock(), RateLimiter(0.0001, 0.001))
        self.changes = changes
        self.state = dict.fromkeys(range(items), 0)  # the number of the last change
        self.seen = dict.fromkeys(range(items), 0)  # what the workers saw of it
        self.busy: Tally[int] = Tally()
        self.overlaps: list[int] = []

    def work(self) -> None:
        with contextlib.suppress(ShutDown):
            while True:
                self._process(self.queue.get())

    def _process(self, item: int) -> None:
        self.busy[item] += 1
        if self.busy[item] > 1:
            self.overlaps.append(item)
        self.seen[item] = self.state[item]
        self.busy[item] -= 1
        self.queue.done(item)

    def produce(self, first: int, step: int) -> None:
        for change in range(1, self.changes + 1):
            for item in range(first, len(self.state), step):
                self.state[item] = change
                if change % 7:
                    self.queue.add(item, change % 2)
                else:
                    self.queue.add_rate_limited(item)


def grouped_queue(most_of_group: int | None = None) -> Queue:
    """Items belong to the group before their slash."""
    return RateLimitingQueue(
        FakeClock(), RateLimiter(1.0, 60.0), group_of=lambda item: item.partition("/")[0], most_of_group=most_of_group
    )


class TestGroups:
    def test_a_group_with_thousands_of_items_delays_another_by_a_turn_or_two(self) -> None:
        queue = grouped_queue()
        for number in range(5_000):
            queue.add(f"noisy/{number}")
        for _ in range(10):
            queue.get()
        queue.add("quiet/first")
        queue.add("quiet/second")
        taken = [queue.get() for _ in range(6)]
        assert taken.index("quiet/first") <= 1
        assert taken.index("quiet/second") <= 4

    def test_a_group_whose_items_take_long_leaves_workers_to_others(self) -> None:
        """Ten workers waited for the writes of ten large jobs of one namespace, and nobody was there for others."""
        queue = grouped_queue(most_of_group=2)
        for number in range(5):
            queue.add(f"slow/{number}")
        assert [queue.get(), queue.get()] == ["slow/0", "slow/1"]
        queue.add("quiet/first")
        assert queue.get() == "quiet/first"
        assert len(queue) == queue.statistics().queued == 3

    def test_what_is_held_back_comes_one_by_one_as_others_of_its_group_are_done(self) -> None:
        queue = grouped_queue(most_of_group=2)
        for number in range(4):
            queue.add(f"slow/{number}")
        queue.add("quiet/0")
        taken = [queue.get() for _ in range(3)]
        assert sorted(taken) == ["quiet/0", "slow/0", "slow/1"]
        queue.add("quiet/1")
        assert queue.get() == "quiet/1", "this held slow/2 and slow/3 back"
        queue.done("quiet/0")
        queue.add("slow/3", priority=1)
        queue.done("slow/1")
        assert queue.get() == "slow/3", "a priority is raised there, too"
        queue.add("slow/0")
        queue.done("slow/0")
        queue.done("slow/3")
        assert {queue.get(), queue.get()} == {"slow/0", "slow/2"}
        assert queue.statistics() == QueueStatistics(0, 3, 0, 0, is_shutting_down=False)

    def test_what_is_held_back_wakes_a_worker_that_waits_and_is_processed_before_the_end(self) -> None:
        queue: RateLimitingQueue[str] = RateLimitingQueue(
            RealClock(), RateLimiter(1.0, 60.0), group_of=lambda item: item[0], most_of_group=1
        )
        for item in ("a0", "a1", "a2"):
            queue.add(item)
        assert queue.get() == "a0"
        taken: list[str] = []

        def work() -> None:
            with contextlib.suppress(ShutDown):
                while True:
                    taken.append(queue.get())
                    queue.done(taken[-1])

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        queue.shut_down()
        queue.done("a0")
        for thread in threads:
            thread.join(60.0)
        assert not any(thread.is_alive() for thread in threads)
        assert taken == ["a1", "a2"]

    def test_a_group_that_comes_back_has_no_turns_saved(self) -> None:
        queue = grouped_queue()
        queue.add("b/0")
        assert queue.get() == "b/0"
        for number in range(100):
            queue.add(f"a/{number}")
        for _ in range(50):
            queue.get()
        for number in range(10):
            queue.add(f"b/{number + 1}")
        taken = "".join(queue.get()[0] for _ in range(8))
        assert 2 <= taken.count("b") <= 4
