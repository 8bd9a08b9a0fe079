"""The work queue against a simple model of it."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helpers.examples import examples
from helpers.fakeclock import FakeClock
from helpers.poll import eventually
from tfjob_controller.kube.workqueue.queue import RateLimiter, RateLimitingQueue, ShutDown

ITEMS = st.sampled_from("abcdef")
PRIORITIES = st.integers(-2, 3)
BASE_SECONDS = 1.0


@dataclass
class Model:
    """Lists that are searched from end to end, and no threads."""

    now: float = 0.0
    queued: list[str] = field(default_factory=list)  # in order of arrival
    dirty: dict[str, int] = field(default_factory=dict)
    processing: set[str] = field(default_factory=set)
    is_oldest_next: bool = False
    waiting: dict[str, tuple[float, int]] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    closed: bool = False

    def add(self, item: str, priority: int) -> None:
        if self.closed:
            return
        if item not in self.dirty and item not in self.processing:
            self.queued.append(item)
        self.dirty[item] = max(priority, self.dirty.get(item, priority))

    def add_after(self, item: str, seconds: float, priority: int) -> None:
        if self.closed:
            return
        if seconds <= 0:
            self.add(item, priority)
            return
        due, highest = self.waiting.get(item, (float("inf"), priority))
        self.waiting[item] = (min(due, self.now + seconds), max(highest, priority))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for item in sorted(self.waiting, key=lambda item: self.waiting[item][0]):
            due, priority = self.waiting[item]
            if due <= self.now:
                del self.waiting[item]
                self.add(item, priority)

    def get(self) -> str:
        oldest, first = self.queued[0], max(self.queued, key=lambda item: self.dirty[item])  # the first of equals
        item = oldest if self.is_oldest_next else first
        self.is_oldest_next = item != oldest
        self.queued.remove(item)
        del self.dirty[item]
        self.processing.add(item)
        return item

    def done(self, item: str) -> None:
        if item in self.processing:
            self.processing.remove(item)
            if item in self.dirty:
                self.queued.append(item)

    def shut_down(self) -> None:
        self.closed = True
        self.waiting.clear()


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.model = Model()
        self.queue = RateLimitingQueue(self.clock, RateLimiter(BASE_SECONDS, cap_seconds=8.0))
        self.has_thread = False
        # Distinct fractions keep two items from ever falling due at the same moment, whose order is nobody's promise.
        self.fraction = 0

    @initialize(items=st.lists(st.tuples(ITEMS, PRIORITIES), max_size=12))
    def fill(self, items: list[tuple[str, int]]) -> None:
        for item, priority in items:
            self.add(item, priority)

    @rule(item=ITEMS, priority=PRIORITIES)
    def add(self, item: str, priority: int) -> None:
        self.queue.add(item, priority)
        self.model.add(item, priority)

    @rule(item=ITEMS, seconds=st.integers(-1, 6), priority=PRIORITIES)
    def add_after(self, item: str, seconds: int, priority: int) -> None:
        self.fraction += 1
        delay = seconds + self.fraction / 1024 if seconds > 0 else float(seconds)
        self.queue.add_after(item, delay, priority)
        self.model.add_after(item, delay, priority)
        self.has_thread |= seconds > 0 and not self.model.closed

    @rule(item=ITEMS, priority=PRIORITIES)
    def add_rate_limited(self, item: str, priority: int) -> None:
        failures = self.model.failures.get(item, 0)
        self.model.failures[item] = failures + 1
        self.advance(1 / 4096)  # see `fraction`
        self.queue.add_rate_limited(item, priority)
        self.model.add_after(item, min(8.0, BASE_SECONDS * 2.0**failures), priority)
        self.has_thread |= not self.model.closed

    @rule(item=ITEMS)
    def forget(self, item: str) -> None:
        self.queue.forget(item)
        self.model.failures.pop(item, None)

    @precondition(lambda self: self.model.queued)
    @rule()
    def get(self) -> None:
        assert self.queue.get() == self.model.get()

    @rule(item=ITEMS)
    def done(self, item: str) -> None:
        self.queue.done(item)
        self.model.done(item)

    @rule(seconds=st.floats(0.0, 5.0))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.advance(seconds)
        if self.has_thread and not self.model.closed:
            self.clock.await_waiters(1)

    @precondition(lambda self: self.model.closed and not self.model.queued)
    @rule()
    def get_at_the_end(self) -> None:
        with pytest.raises(ShutDown):
            self.queue.get()

    @precondition(lambda self: len(self.model.processing) > 2)  # rare, so that most runs stay open for long
    @rule()
    def shut_down(self) -> None:
        self.queue.shut_down()
        self.model.shut_down()

    @invariant()
    def agrees(self) -> None:
        found, model = self.queue.statistics(), self.model
        assert len(self.queue) == found.queued == len(model.queued)
        assert found.processing == len(model.processing)
        assert found.dirty_while_processing == len(set(model.dirty) & model.processing)
        assert found.delayed == len(model.waiting)
        assert {item: self.queue.num_requeues(item) for item in "abcdef"} == {
            item: model.failures.get(item, 0) for item in "abcdef"
        }

    @invariant()
    def what_is_queued_is_dirty_and_not_processed(self) -> None:
        assert set(self.model.queued) == set(self.model.dirty) - self.model.processing

    def teardown(self) -> None:
        """Whatever happened: nothing is left once the workers have processed everything."""
        self.queue.shut_down()
        self.model.shut_down()
        for item in set(self.model.processing):
            self.done(item)
        while self.model.queued:
            self.get()
            for item in set(self.model.processing):
                self.done(item)
        assert eventually(lambda: len(self.queue) == 0)
        assert self.queue.statistics().processing == 0


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=examples(200), stateful_step_count=60, deadline=None)


@settings(max_examples=examples(300), deadline=None)
@given(
    before=st.lists(PRIORITIES, max_size=12),
    priority=PRIORITIES,
    later=st.lists(st.lists(PRIORITIES, min_size=1, max_size=3), min_size=30, max_size=30),
)
def test_no_item_waits_for_more_turns_than_the_items_before_it_take(
    before: list[int], priority: int, later: list[list[int]]
) -> None:
    """However many come after it, and however urgent they are: here never fewer come than are taken."""
    queue: RateLimitingQueue[str] = RateLimitingQueue(FakeClock(), RateLimiter(1.0, 60.0))
    for number, each in enumerate([*before, priority]):
        queue.add(f"{number}", each)
    waited_for, turns = f"{len(before)}", 0
    for turn, urgent in enumerate(later, 1):
        for number, each in enumerate(urgent):
            queue.add(f"later {turn} {number}", each)
        item = queue.get()
        queue.done(item)
        if item == waited_for:
            turns = turn
            break
    assert 0 < turns <= 2 * (len(before) + 1)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 1), st.booleans()), max_size=60))
@settings(max_examples=examples(100))
def test_items_of_all_groups_leave_once_each_and_a_groups_items_in_order(
    arrivals: list[tuple[str, int, bool]],
) -> None:
    queue: RateLimitingQueue[tuple[str, int, int]] = RateLimitingQueue(
        FakeClock(), RateLimiter(1.0, 60.0), group_of=lambda item: item[0]
    )
    taken: list[tuple[str, int, int]] = []
    for number, (group, priority, takes_one) in enumerate(arrivals):
        queue.add((group, priority, number), priority)
        if takes_one:
            taken.append(queue.get())
    taken += [queue.get() for _ in range(len(queue))]
    assert len(set(taken)) == len(taken) == len(arrivals)
    for group in "abc":
        for priority in (-1, 0, 1):
            numbers = [number for name, of, number in taken if (name, of) == (group, priority)]
            assert numbers == sorted(numbers)
