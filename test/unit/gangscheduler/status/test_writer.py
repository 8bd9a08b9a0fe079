"""What is written, when, and by how many threads; with a real API server's delays and a real HTTP client."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import pytest
from msgspec.structs import replace

from helpers.apiconfig import config_for
from helpers.hangingapi import HangingApi
from helpers.memoryapi import refusal
from helpers.poll import eventually
from tfjob_controller.api.gang import GANGS, Gang
from tfjob_controller.gangscheduler.status.writer import StatusChange, StatusUpdate, StatusWriter, WriteOutcome
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.events.recorder import EventRecorder
from tfjob_controller.kube.http.transport import Transport
from tfjob_controller.util.clock import RealClock

THREADS = 5
SLOW, QUICK = "slow", "quick"
# Nothing here waits for it.
TIMEOUT_SECONDS = 600.0


class Stage:
    """A writer, and an API server that does not answer writes of statuses in the namespace `SLOW`."""

    def __init__(self, server: HangingApi, threads: int) -> None:
        self.server = server
        self.transport = Transport(config_for(server.url), qps=0)
        self.gangs: Store[Gang] = Store()
        self.woken = 0
        self.is_observer_broken = False
        self.writer = StatusWriter(
            self.gangs,
            ResourceClient(self.transport, GANGS, timeout_seconds=TIMEOUT_SECONDS, retry=False),
            None,
            self._observe,
            EventRecorder(self.transport, RealClock(), "test", "test"),
            self._wake,
            RealClock(),
            threads=threads,
        )
        self.writer.start()

    def submit(self, namespace: str, name: str, change: StatusChange = StatusChange.ADMITTED) -> None:
        self.writer.submit(self.update(namespace, name, change))

    def update(self, namespace: str, name: str, change: StatusChange) -> StatusUpdate:
        path = GANGS.path(namespace)
        if f"{path}/{name}" not in self.server.api.objects:
            body = {"metadata": {"name": name, "namespace": namespace}}
            self.server.api.request("POST", path, body=msgspec.json.encode(body))
        gang = GANGS.decode(msgspec.json.encode(self.server.api.objects[f"{path}/{name}"]))
        return StatusUpdate(gang, replace(gang.status, message=str(change)), change)

    def outcome(self) -> WriteOutcome:
        (outcome,) = eventually(self.writer.outcomes)
        return outcome

    def message(self, namespace: str, name: str) -> str:
        found = self.gangs.get(f"{namespace}/{name}")
        return "" if found is None else found.status.message

    def _observe(self, result: str, gang: Gang) -> None:
        if self.is_observer_broken:
            raise ZeroDivisionError

    def _wake(self) -> None:
        self.woken += 1


@pytest.fixture
def threads() -> int:
    return THREADS


@pytest.fixture
def stage(threads: int) -> Iterator[Stage]:
    with HangingApi(SLOW) as server:
        stage = Stage(server, threads)
        yield stage
        server.release()
        assert stage.writer.stop(60.0)
        stage.transport.close()


def hang_all(stage: Stage, count: int = 3 * THREADS) -> None:
    """Writes of one namespace take all threads that it may have."""
    for number in range(count):
        stage.submit(SLOW, f"g{number}")
    eventually(lambda: stage.server.writes(SLOW) >= THREADS - 1)


def test_a_namespace_whose_writes_hang_leaves_a_thread_to_others(stage: Stage) -> None:
    hang_all(stage)
    for number in range(3):
        stage.submit(QUICK, f"g{number}")
    eventually(lambda: all(stage.message(QUICK, f"g{number}") for number in range(3)))
    assert stage.server.writes(SLOW) == THREADS - 1


def test_the_loop_is_woken_when_a_write_ends_and_takes_its_outcome_once(stage: Stage) -> None:
    stage.submit(QUICK, "one")
    eventually(lambda: stage.woken == 1)
    assert stage.writer.under_way() == {f"{QUICK}/one"}, "until its outcome is taken"
    outcome = stage.outcome()
    assert (outcome.key, outcome.error) == (f"{QUICK}/one", None)
    assert (stage.writer.outcomes(), stage.writer.under_way()) == ([], set())


def test_a_write_that_has_begun_cannot_be_withdrawn(stage: Stage) -> None:
    stage.submit(SLOW, "one", StatusChange.WAITING)
    eventually(lambda: stage.server.writes(SLOW) == 1)
    assert not stage.writer.withdraw(f"{SLOW}/one")
    stage.server.release()
    eventually(lambda: stage.woken == 1)
    assert not stage.writer.withdraw(f"{SLOW}/one"), "nobody has handled its outcome"
    assert stage.outcome().error is None
    assert stage.writer.withdraw(f"{SLOW}/one")


def test_a_report_that_has_not_begun_is_withdrawn_and_nothing_else_is(stage: Stage) -> None:
    hang_all(stage)
    stage.submit(SLOW, "report", StatusChange.WAITING)
    stage.submit(SLOW, "release", StatusChange.RELEASED)
    assert stage.writer.withdraw(f"{SLOW}/report")
    assert not stage.writer.withdraw(f"{SLOW}/release")
    stage.server.release()
    eventually(lambda: stage.writer.statistics().queued + stage.writer.statistics().processing == 0)
    assert (stage.message(SLOW, "report"), stage.message(SLOW, "release")) == ("", "released")


@pytest.mark.parametrize("threads", [1])
def test_admissions_come_first_and_reports_last(stage: Stage) -> None:
    stage.submit(SLOW, "first")
    eventually(lambda: stage.server.writes(SLOW) == 1)
    for number in range(9):
        stage.submit(SLOW, f"report{number}", StatusChange.WAITING)
    for number in range(3):
        stage.submit(SLOW, f"change{number}", StatusChange.BOUND)
    stage.submit(SLOW, "admission")
    stage.server.release()
    outcomes: list[WriteOutcome] = []
    eventually(lambda: outcomes.extend(stage.writer.outcomes()) or len(outcomes) == 14)
    names = [each.key.partition("/")[2] for each in outcomes]
    assert names[:2] == ["first", "admission"]
    # Every other one is the oldest, so that none starves.
    assert names[2:8] == ["report0", "change0", "report1", "change1", "report2", "change2"]


def test_a_gang_is_read_once_at_a_time(stage: Stage) -> None:
    stage.update(QUICK, "one", StatusChange.WAITING)
    for _ in range(5):
        stage.writer.read(f"{QUICK}/one")
    outcome = stage.outcome()
    assert (outcome.update, outcome.error) == (None, None)
    assert stage.gangs.get(f"{QUICK}/one") is not None


def test_errors_are_outcomes(stage: Stage) -> None:
    update = stage.update(QUICK, "one", StatusChange.WAITING)
    stage.server.api.script.append(refusal(409, "Conflict"))
    stage.writer.submit(update)
    error = stage.outcome().error
    assert error is not None
    assert error.is_conflict
    stage.writer.read(f"{QUICK}/nobody")
    error = stage.outcome().error
    assert error is not None
    assert error.is_not_found


def test_an_exception_leaves_no_gang_under_way_and_nobody_believes_that_nothing_was_written(stage: Stage) -> None:
    stage.is_observer_broken = True
    stage.submit(QUICK, "one")
    error = stage.outcome().error
    assert error is not None
    assert error.outcome_unknown
    assert stage.writer.withdraw(f"{QUICK}/one")


def test_a_stop_drops_what_has_not_begun_and_waits_for_the_rest_within_its_timeout(stage: Stage) -> None:
    hang_all(stage)
    begin = time.monotonic()
    assert not stage.writer.stop(0.1)
    assert time.monotonic() - begin < TIMEOUT_SECONDS / 10
    stage.submit(QUICK, "late")
    stage.server.release()
    assert stage.writer.stop(60.0)
    assert (stage.server.writes(SLOW), stage.server.writes(QUICK)) == (THREADS - 1, 0)
