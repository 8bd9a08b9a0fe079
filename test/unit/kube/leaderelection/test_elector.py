"""The rules of kube/leaderelection.py: what lease.py decides, done in time and by threads."""

import threading
from collections.abc import Callable, Iterator

import pytest

from helpers.fakeclock import FakeClock
from helpers.heldrequest import HeldRequest
from helpers.memoryapi import Fault, MemoryApi, Request, no_answer
from helpers.poll import eventually
from tfjob_controller.kube.leaderelection.elector import LeaderElector

STOP_SECONDS = 10.0


class Log:
    """What an elector did, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on(self, name: str) -> None:
        self.lines.append("metric on")

    def off(self, name: str) -> None:
        self.lines.append("metric off")

    def slowpath_exercised(self, name: str) -> None:
        self.lines.append("slow path")


Elector = tuple[LeaderElector, Log]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(is_strict=True)


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi()


@pytest.fixture
def elector(api: MemoryApi, clock: FakeClock) -> Iterator[Callable[..., Elector]]:
    """New electors, which are stopped at the end, and what they log."""
    electors: list[LeaderElector] = []

    def new(identity: str = "one", on_started: Callable[[], None] = lambda: None) -> Elector:
        log = Log()

        def started() -> None:
            log.lines.append("started")
            on_started()

        elector = LeaderElector(
            api,
            clock,
            "default",
            "leader",
            identity,
            on_started=started,
            on_stopped=lambda: log.lines.append("stopped"),
            metrics=log,
        )
        electors.append(elector)
        elector.start()
        return elector, log

    yield new
    for each in electors:
        assert each.stop(STOP_SECONDS)


@pytest.fixture
def leading(elector: Callable[..., Elector], clock: FakeClock) -> Elector:
    """An elector that leads, whose threads wait for the next renewal."""
    one, log = elector()
    eventually(lambda: "started" in log.lines)
    clock.await_waiters(2)
    return one, log


def rest(clock: FakeClock, seconds: float, threads: int = 2) -> None:
    """Let time pass in small steps, each of which all the threads get to see."""
    for _ in range(round(seconds / 0.5)):
        clock.await_waiters(threads)
        clock.advance(0.5)
    clock.await_waiters(threads)


def test_the_leader_starts_once(leading: Elector, clock: FakeClock) -> None:
    one, log = leading
    assert one.is_leader
    assert one.leader == "one"
    rest(clock, 60.0)
    assert log.lines == ["metric off", "metric on", "started"]


def test_the_lease_is_renewed_within_the_retry_time_each_time(
    elector: Callable[..., Elector], clock: FakeClock, api: MemoryApi
) -> None:
    elector()
    rest(clock, 100.0)
    renewals = len(api.written("PUT"))
    assert 100.0 / 2.0 <= renewals <= 100.0 / 1.0


def test_a_second_one_waits_and_leads_within_the_retry_time_after_the_first_has_stopped(
    elector: Callable[..., Elector], clock: FakeClock
) -> None:
    one, _ = elector("one")
    eventually(lambda: one.is_leader)
    two, log = elector("two")
    rest(clock, 30.0, threads=4)
    assert (one.is_leader, two.is_leader, log.lines) == (True, False, ["metric off"])
    assert one.stop(STOP_SECONDS)
    assert not one.is_leader
    rest(clock, 2.0)
    assert two.is_leader
    assert log.lines == ["metric off", "metric on", "started"]


def test_a_second_one_leads_when_the_first_has_died_and_its_lease_has_run_out(
    elector: Callable[..., Elector], clock: FakeClock, api: MemoryApi
) -> None:
    one, _ = elector("one")
    eventually(lambda: one.is_leader)
    two, _ = elector("two")
    rest(clock, 4.0, threads=4)

    def only_two(request: Request) -> None:
        if request.body and request.body["spec"]["holderIdentity"] == "one":
            no_answer(applied=False).before(request)

    api.always = Fault(before=only_two)
    rest(clock, 8.0, threads=4)
    assert (one.is_leader, two.is_leader) == (True, False)
    while not two.is_leader:
        rest(clock, 0.5)
        assert not (one.is_leader and two.is_leader)
    assert not one.is_leader


def test_a_leader_that_cannot_renew_stops_at_the_deadline(leading: Elector, clock: FakeClock, api: MemoryApi) -> None:
    one, log = leading
    api.always = no_answer(applied=False)
    rest(clock, 9.5)
    assert one.is_leader
    assert "stopped" not in log.lines
    clock.advance(0.5)
    assert not one.is_leader
    eventually(lambda: log.lines[-2:] == ["metric off", "stopped"])


@pytest.mark.parametrize("carried_out", [False, True], ids=["never carried out", "carried out"])
def test_a_leader_stops_at_the_deadline_also_while_a_request_hangs_that_ignores_its_time_out(
    leading: Elector, clock: FakeClock, api: MemoryApi, carried_out: bool
) -> None:
    one, log = leading
    held = HeldRequest()
    api.script.append(Fault(after=held) if carried_out else Fault(before=held))
    clock.advance(2.0)
    held.await_request()
    clock.await_waiters(1)
    clock.advance(8.0)
    assert not one.is_leader
    eventually(lambda: log.lines[-1] == "stopped")
    held.release()  # the answer comes at last
    eventually(lambda: one.stop(STOP_SECONDS))
    assert not one.is_leader
    assert log.lines == ["metric off", "metric on", "started", "metric off", "stopped"]


def test_a_stop_is_no_loss(leading: Elector, api: MemoryApi) -> None:
    one, log = leading
    assert one.stop(STOP_SECONDS)
    assert log.lines == ["metric off", "metric on", "started", "metric off"]
    assert api.list("leases")[0]["spec"]["holderIdentity"] == ""


def test_a_stop_before_leading_leaves_the_lease_alone(
    elector: Callable[..., Elector], api: MemoryApi, clock: FakeClock
) -> None:
    one, _ = elector("one")
    eventually(lambda: one.is_leader)
    two, log = elector("two")
    clock.await_waiters(4)
    assert two.stop(STOP_SECONDS)
    assert "started" not in log.lines
    assert api.list("leases")[0]["spec"]["holderIdentity"] == "one"


def test_a_lease_that_is_won_while_stopping_is_given_back(elector: Callable[..., Elector], api: MemoryApi) -> None:
    held = HeldRequest()
    api.script.extend([Fault(), Fault(after=held)])
    one, log = elector()
    held.await_request()
    stopping = threading.Thread(target=one.stop, args=(STOP_SECONDS,))
    stopping.start()
    eventually(lambda: one._stop.is_set())
    held.release()
    stopping.join(STOP_SECONDS)
    assert "started" not in log.lines
    assert api.list("leases")[0]["spec"]["holderIdentity"] == ""


def test_work_that_cannot_start_gives_the_lease_back_and_stops(elector: Callable[..., Elector], api: MemoryApi) -> None:
    def fail() -> None:
        raise RuntimeError("no room for caches")

    _, log = elector(on_started=fail)
    eventually(lambda: "stopped" in log.lines)
    assert api.list("leases")[0]["spec"]["holderIdentity"] == ""
    assert log.lines.count("started") == 1


def test_no_thread_stays(elector: Callable[..., Elector]) -> None:
    one, _ = elector()
    assert sorted(lease_threads()) == ["lease-leader", "lease-watch-leader"]
    assert one.stop(STOP_SECONDS)
    assert lease_threads() == []


def test_an_elector_that_was_never_started_stops(api: MemoryApi, clock: FakeClock) -> None:
    one = LeaderElector(api, clock, "default", "leader", "one", on_started=lambda: None, on_stopped=lambda: None)
    assert one.stop(STOP_SECONDS)
    assert not one.is_leader


def lease_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lease-")]
