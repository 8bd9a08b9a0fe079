"""The rules of controller/logs/follower.py and followedlog.py, against a server that answers as a test says."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from helpers.fakeclock import FakeClock
from helpers.logserver import Asked, LogServer
from helpers.poll import eventually
from tfjob_controller.api.common.core import (
    ContainerState,
    ContainerStatus,
    Pod,
    PodMeta,
    PodSpec,
    PodStatus,
    Running,
    Terminated,
    Waiting,
)
from tfjob_controller.controller.logs import followedlog, follower
from tfjob_controller.controller.logs.checkpointparser import MAX_KEPT_LINES
from tfjob_controller.controller.logs.followedlog import (
    BEHIND_ROUNDS,
    GRACE_SECONDS,
    HEAD_SECONDS,
    POLL_SECONDS,
    QUIET_SECONDS,
    ROUND_BYTES,
    TAIL_LINES,
)
from tfjob_controller.controller.logs.follower import NOTIFY_SECONDS, PERIOD_SECONDS, LogFollower
from tfjob_controller.controller.logs.metricparser import MetricValue
from tfjob_controller.jobs.state.observed import SavedCheckpoint
from tfjob_controller.kube.http.responsestream import Connector
from tfjob_controller.util.clock import RealClock

RUNS = ContainerState(running=Running())
ENDED = ContainerState(terminated=Terminated(0))
WAITS = ContainerState(waiting=Waiting("ContainerCreating"))
NAMES = ("loss", "step")
# Longer than any rest after a failure.
A_WHILE = 40.0


def pod(name: str = "p", state: ContainerState = RUNS, *, restarts: int = 0, last: ContainerState | None = None) -> Pod:
    container = ContainerStatus("trainer", restart_count=restarts, state=state, last_state=last or ContainerState())
    others = ContainerStatus("sidecar", state=RUNS)
    meta = PodMeta(name=name, namespace="ns", uid=f"u-{name}")
    return Pod(meta, PodSpec(), PodStatus(phase="Running", container_statuses=(others, container)))


def line(second: int, text: str) -> bytes:
    """As the API server sends it when asked for times."""
    return f"2026-01-01T00:00:{second:02d}.500000000Z {text}\n".encode()


def at(value: str, second: int) -> MetricValue:
    return MetricValue(value, f"2026-01-01T00:00:{second:02d}Z")


@contextlib.contextmanager
def saying(asked: Asked, *lines: bytes) -> Iterator[None]:
    """More than the sockets between hold: whoever says it waits until it is read, or the reader is gone."""
    thread = threading.Thread(target=asked.say, args=lines)
    thread.start()
    yield
    thread.join(60.0)
    assert not thread.is_alive()


@dataclass
class Bench:
    """Rounds are made by hand: a thread would make them whenever it likes."""

    server: LogServer
    follower: LogFollower
    clock: FakeClock
    told: list[str] = field(default_factory=list)

    def follow(self, followed: Pod, names: tuple[str, ...] = NAMES, job: str = "job", namespace: str = "ns") -> None:
        self.follower.follow(f"{namespace}/{job}", f"u-{job}", followed, "trainer", names)

    def asked(self, seconds: float = 0.0) -> Asked:
        """The request that a round makes after so long."""
        self.clock.advance(seconds)
        self.follower.run_round()
        return self.server.asked()

    def metrics(self, job: str = "job") -> dict[str, MetricValue]:
        return dict(self.follower.metrics_of(f"u-{job}"))

    def until(self, condition: Callable[[], bool], seconds: float = PERIOD_SECONDS) -> None:
        """Rounds, each so long after the one before, until it is so."""

        def look() -> bool:
            self.follower.run_round()
            if condition():
                return True
            self.clock.advance(seconds)
            return False

        eventually(look)

    def has_read(self, count: int) -> None:
        self.until(lambda: self.follower.statistics().bytes_read >= count)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with LogServer() as server:
        clock, told = FakeClock(), list[str]()
        follower = LogFollower(Connector(server.config(tmp_path), clock), told.append, clock)
        yield Bench(server, follower, clock, told)
        # Ends its connections as a thread of its own would.
        follower.stop(0.0)
        follower._run()


def test_the_last_value_of_each_metric_is_kept_with_its_time_and_the_job_is_queued(bench: Bench) -> None:
    bench.follow(pod())
    asked = bench.asked().begin()
    assert asked.path == "/api/v1/namespaces/ns/pods/p/log"
    assert asked.query == {
        "container": "trainer",
        "follow": "true",
        "timestamps": "true",
        "tailLines": str(TAIL_LINES),
    }
    asked.say(line(1, "loss=3 step=1"), line(2, "loss=2"), line(3, "val_loss=9"))
    bench.until(lambda: bool(bench.told))
    assert bench.metrics() == {"loss": at("2", 2), "step": at("1", 1)}
    assert bench.told == ["ns/job"]


def test_a_line_without_a_time_was_said_when_it_was_read(bench: Bench) -> None:
    bench.follow(pod())
    bench.asked().begin().say(b"loss=1\n")
    bench.until(lambda: bool(bench.told))
    assert bench.metrics() == {"loss": at("1", int(PERIOD_SECONDS))}


def test_a_job_is_queued_at_intervals_however_much_its_log_grows(bench: Bench) -> None:
    bench.follow(pod())
    asked = bench.asked().begin()
    for step in range(1, 50):
        asked.say(line(step, f"step={step}"))
        bench.has_read(step * len(line(1, "step=1")))
    seconds = bench.clock.monotonic() - 1000.0
    assert 2 <= len(bench.told) <= seconds / NOTIFY_SECONDS + 1
    bench.clock.advance(NOTIFY_SECONDS)
    bench.follower.run_round()
    assert bench.metrics()["step"] == at("49", 49), "what was said last is told as well"


def test_a_log_without_new_values_notifies_nobody(bench: Bench) -> None:
    bench.follow(pod())
    asked = bench.asked().begin()
    asked.say(line(1, "loss=1"))
    bench.until(lambda: bool(bench.told))
    asked.say(line(2, "loss=1"), line(3, "nothing"))
    bench.has_read(100)
    bench.clock.advance(NOTIFY_SECONDS)
    bench.follower.run_round()
    assert bench.told == ["ns/job"]


def test_saying_again_what_is_wanted_changes_nothing(bench: Bench) -> None:
    bench.follow(pod())
    bench.asked().begin()
    bench.follow(pod())
    bench.follower.run_round()
    assert bench.server.nobody_asks()
    assert bench.follower.statistics().opened == 1


@pytest.mark.parametrize(
    "state",
    [pytest.param(WAITS, id="waits"), pytest.param(ContainerState(), id="nobody knows")],
)
def test_a_container_that_has_not_run_has_no_log(bench: Bench, state: ContainerState) -> None:
    bench.follow(pod(state=state))
    bench.follower.run_round()
    assert bench.follower.statistics().jobs == 0
    assert bench.follower.has_read_all("u-job")


def test_a_log_that_breaks_off_is_followed_from_where_it_was(bench: Bench) -> None:
    bench.follow(pod())
    asked = bench.asked().begin()
    asked.say(line(7, "loss=7"), line(8, "step=8"), b"2026-01-01T00:00:09.5")
    asked.break_off()
    bench.until(lambda: bench.follower.statistics().failures == 1)
    again = bench.asked(A_WHILE)
    assert again.query["sinceTime"] == "2026-01-01T00:00:08Z"
    assert again.query["follow"] == "true"
    again.begin().say(line(8, "step=8"), line(9, "step=9"))
    bench.until(lambda: bench.metrics().get("step") == at("9", 9))


def test_lines_that_come_twice_take_no_value_back(bench: Bench) -> None:
    bench.follow(pod())
    asked = bench.asked().begin()
    asked.say(line(8, "step=8"))
    bench.until(lambda: bool(bench.told))
    asked.break_off()
    bench.until(lambda: bench.follower.statistics().failures == 1)
    bench.asked(A_WHILE).begin().say(line(7, "step=7 loss=1"))
    bench.until(lambda: "loss" in bench.metrics())
    assert bench.metrics()["step"] == at("8", 8)


def test_the_end_of_a_stream_while_the_container_runs_is_not_the_end_of_the_log(bench: Bench) -> None:
    bench.follow(pod())
    bench.asked().begin().end()
    bench.until(lambda: bench.follower.statistics().open == 0)
    assert not bench.follower.has_read_all("u-job")
    bench.asked(A_WHILE).begin().say(line(1, "loss=1"))
    bench.until(lambda: "loss" in bench.metrics())


def test_a_log_that_ends_again_and_again_is_not_asked_for_without_a_delay(bench: Bench) -> None:
    bench.follow(pod())
    bench.asked().begin().end()
    bench.until(lambda: bench.follower.statistics().open == 0)
    for times in range(2, 8):
        bench.follower.run_round()
        assert bench.follower.statistics().open == 0
        bench.asked(A_WHILE).begin().end()
        bench.until(lambda: bench.follower.statistics().open == 0)
        assert bench.follower.statistics().opened == times


def test_a_container_that_has_ended_is_read_to_its_end_once_more(bench: Bench) -> None:
    bench.follow(pod())
    asked = bench.asked().begin()
    asked.say(line(1, "loss=1"))
    asked.end()
    bench.until(lambda: bench.follower.statistics().open == 0)
    bench.follow(pod(state=ENDED))
    assert not bench.follower.has_read_all("u-job")
    last = bench.asked()
    assert "follow" not in last.query
    last.begin().say(line(1, "loss=1"), line(2, "loss=0.5")[:-1])
    last.end()
    bench.until(lambda: bench.follower.has_read_all("u-job"), 0.0)
    assert bench.metrics() == {"loss": at("0.5", 2)}, "its last line need have no end"
    assert bench.told[-1] == "ns/job"
    bench.follow(pod(state=ENDED))
    bench.clock.advance(A_WHILE)
    bench.follower.run_round()
    assert bench.server.nobody_asks()
    assert bench.follower.has_read_all("u-job")
    assert bench.metrics() == {"loss": at("0.5", 2)}
    assert not bench.follower._logs, "a job that is over costs no round anything"


def test_an_answer_that_was_followed_is_not_believed_to_be_whole(bench: Bench) -> None:
    """A kubelet ends it with the old file, if it had not read all of that when the log was rotated."""
    bench.follow(pod())
    asked = bench.asked().begin()
    bench.follow(pod(state=ENDED))
    bench.follower.run_round()
    asked.say(line(1, "loss=1"))
    asked.end()
    bench.until(lambda: bench.follower.statistics().opened == 2, 0.0)
    last = bench.server.asked()
    assert ("follow" in last.query, last.query["sinceTime"]) == (False, "2026-01-01T00:00:01Z")
    last.begin().say(line(2, "loss=2"))
    last.end()
    bench.until(lambda: bench.follower.has_read_all("u-job"), 0.0)
    assert bench.metrics() == {"loss": at("2", 2)}


def test_one_that_does_not_end_with_its_container_is_asked_for_again(bench: Bench) -> None:
    bench.follow(pod())
    asked = bench.asked()
    asked.begin()
    bench.until(lambda: bench.follower._logs["u-job", "metrics"].log._may_be_silent)
    bench.follow(pod(state=ENDED))
    bench.follower.run_round()
    last = bench.asked(GRACE_SECONDS)
    assert asked.is_hung_up()
    last.begin().end()
    bench.until(lambda: bench.follower.has_read_all("u-job"), 0.0)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda asked: asked.refuse(500), id="an error each time"),
        pytest.param(lambda asked: asked.refuse(404), id="it is gone"),
        pytest.param(lambda asked: asked.break_off(), id="it breaks off"),
        pytest.param(lambda asked: None, id="silence"),
        pytest.param(lambda asked: asked.begin(), id="silence after a head"),
    ],
)
def test_nobody_waits_for_ever_for_the_end_of_a_log(bench: Bench, answer: Callable[[Asked], object]) -> None:
    bench.follow(pod(state=ENDED))

    def look() -> bool:
        if not bench.server.nobody_asks():
            answer(bench.server.asked())
        return bench.follower.has_read_all("u-job")

    # In large steps, for `eventually` rests for a tenth of a second between two looks.
    bench.until(look, 1.0)
    assert bench.told == ["ns/job"]


def test_nor_where_the_api_server_is_not_there(tmp_path: Path) -> None:
    with LogServer() as server:
        config = server.config(tmp_path)
    clock, told = FakeClock(), list[str]()
    follower = LogFollower(Connector(config, clock), told.append, clock)
    follower.follow("ns/job", "u-job", pod(state=ENDED), "trainer", NAMES)

    def look() -> bool:
        follower.run_round()
        clock.advance(1.0)
        return follower.has_read_all("u-job")

    eventually(look)


def test_an_unreachable_api_server_gets_few_requests(tmp_path: Path) -> None:
    with LogServer() as server:
        config = server.config(tmp_path)
    clock = FakeClock()
    tries: list[float] = []

    class Observer:
        def request_finished(self, method: str, host: str, code: str, seconds: float) -> None:
            tries.append(clock.monotonic())

        def request_retried(self, method: str, host: str, code: str) -> None: ...
        def rate_limited(self, method: str, host: str, seconds: float) -> None: ...

    follower = LogFollower(Connector(config, clock, observer=Observer()), str, clock)
    for number in range(50):
        follower.follow(f"ns/{number}", f"u-{number}", pod(f"p{number}"), "trainer", NAMES)
    for _ in range(1000):
        follower.run_round()
        clock.advance(1.0)
    assert 20 < len(tries) < 200, "and not each log for itself"


def test_a_node_that_does_not_answer_holds_up_nobody_and_is_given_up(bench: Bench) -> None:
    bench.follow(pod("dead"), job="dead")
    dead = bench.asked()
    bench.follow(pod("alive"), job="alive")
    bench.asked().begin().say(line(1, "loss=1"))
    bench.until(lambda: "loss" in bench.metrics("alive"))
    bench.clock.advance(HEAD_SECONDS)
    bench.follower.run_round()
    assert dead.is_hung_up()
    assert bench.asked(A_WHILE).path.endswith("/dead/log")


def test_silence_is_nothing_bad_but_is_not_believed_for_ever(bench: Bench) -> None:
    bench.follow(pod())
    asked = bench.asked()
    asked.begin()
    bench.until(lambda: bench.follower._logs["u-job", "metrics"].log._may_be_silent)
    bench.clock.advance(QUIET_SECONDS - A_WHILE)
    bench.follower.run_round()
    assert bench.follower.statistics().opened == 1
    bench.clock.advance(A_WHILE)
    bench.follower.run_round()
    assert bench.follower.statistics().failures == 0
    again = bench.server.asked()
    assert asked.is_hung_up()
    again.begin().say(line(1, "loss=1"))
    bench.until(lambda: "loss" in bench.metrics())


def test_a_log_that_grows_faster_than_it_is_read_is_skipped_to_its_end(bench: Bench) -> None:
    bench.follow(pod())
    asked = bench.asked().begin()
    much = line(1, "step=1 " + "x" * 9000) * (BEHIND_ROUNDS * ROUND_BYTES // 9000)
    with saying(asked, much * 20):
        bench.until(lambda: bench.follower.statistics().jumps == 1)
    again = bench.server.asked()
    assert int(again.query["tailLines"]) < TAIL_LINES
    again.begin().say(line(2, "step=1000"))
    bench.until(lambda: bench.metrics().get("step") == at("1000", 2))
    assert bench.follower.statistics().failures == 0


def test_of_a_log_that_says_much_no_round_reads_more_than_its_share(bench: Bench) -> None:
    bench.follow(pod())
    with saying(bench.asked().begin(), b"x" * 6_000_000):
        for _ in range(BEHIND_ROUNDS - 1):
            before = bench.follower.statistics().bytes_read
            bench.has_read(before + 1)
            assert bench.follower.statistics().bytes_read - before <= 2 * ROUND_BYTES
        bench.follower.forget("u-job")
        bench.follower.run_round()


def test_a_line_of_a_megabyte_and_noise_hide_no_value(bench: Bench) -> None:
    bench.follow(pod())
    asked = bench.asked().begin()
    with saying(asked, bytes(range(256)) * 4096, b"\n", line(1, "loss=1"), b"\x00\xff\x1b[0m\r\n"):
        bench.until(lambda: bench.metrics().get("loss") == at("1", 1))


def test_a_new_pod_takes_over_and_what_the_one_before_said_stands(bench: Bench) -> None:
    bench.follow(pod("first"))
    first = bench.asked().begin()
    first.say(line(8, "loss=8 step=8"))
    bench.until(lambda: bool(bench.told))
    bench.follow(pod("second", WAITS))
    bench.follower.run_round()
    bench.follow(pod("second"))
    second = bench.asked()
    assert first.is_hung_up()
    assert "sinceTime" not in second.query
    second.begin().say(line(2, "step=1"))
    bench.until(lambda: bench.metrics() == {"loss": at("8", 8), "step": at("1", 2)})


def test_a_container_that_starts_again_in_its_pod_is_followed_again(bench: Bench) -> None:
    bench.follow(pod(state=ENDED))
    bench.asked().begin().end()
    bench.until(lambda: bench.follower.has_read_all("u-job"), 0.0)
    bench.follow(pod(restarts=1, last=ENDED))
    assert not bench.follower.has_read_all("u-job")
    assert bench.asked().query["follow"] == "true"


def test_other_names_are_looked_for_from_the_end_of_the_log_on(bench: Bench) -> None:
    bench.follow(pod())
    bench.asked().begin().say(line(1, "loss=1 step=1 f1=3"))
    bench.until(lambda: bool(bench.told))
    bench.follow(pod(), ("loss", "f1"))
    bench.asked().begin().say(line(1, "loss=1 step=1 f1=3"))
    bench.until(lambda: bench.metrics() == {"loss": at("1", 1), "f1": at("3", 1)})


@pytest.mark.parametrize("by_key", [False, True])
def test_of_a_forgotten_job_nothing_is_kept(bench: Bench, by_key: bool) -> None:
    bench.follow(pod())
    asked = bench.asked().begin()
    asked.say(line(1, "loss=1"))
    bench.until(lambda: bool(bench.told))
    bench.follower.forget_key("ns/job") if by_key else bench.follower.forget("u-job")
    bench.follower.run_round()
    assert bench.metrics() == {}
    assert asked.is_hung_up()
    assert bench.follower.statistics().jobs == 0
    assert bench.follower.has_read_all("u-job")


def test_a_log_that_may_not_be_read_is_retried_at_intervals(bench: Bench) -> None:
    bench.follow(pod())
    for times in range(1, 20):
        bench.asked(A_WHILE).refuse(403)
        bench.until(lambda: bench.follower.statistics().open == 0)
        assert bench.follower.statistics().failures == times
    assert not bench.follower.has_read_all("u-job")


def test_a_pod_that_is_gone_for_good_is_given_up(bench: Bench) -> None:
    bench.follow(pod())
    for _ in range(followedlog._GONE_TRIES):
        assert not bench.follower.has_read_all("u-job")
        bench.asked(A_WHILE).refuse(404)
        bench.until(lambda: bench.follower.statistics().open == 0)
    assert bench.follower.has_read_all("u-job")
    bench.clock.advance(A_WHILE)
    bench.follower.run_round()
    assert bench.follower.statistics().opened == followedlog._GONE_TRIES


def test_too_many_to_follow_are_looked_at_now_and_then(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "MAX_FOLLOWED", 1)
    bench.follow(pod("one"), job="one")
    assert bench.asked().begin().query["follow"] == "true"
    bench.follow(pod("two"), job="two")
    looked = bench.asked()
    assert "follow" not in looked.query
    looked.begin().say(line(1, "loss=1"))
    looked.end()
    bench.until(lambda: "loss" in bench.metrics("two"), 0.5)
    assert not bench.follower.has_read_all("u-two")
    assert bench.asked(POLL_SECONDS).path.endswith("/two/log")


def test_a_namespace_with_many_logs_takes_neither_all_connections_nor_all_turns(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "MAX_FOLLOWED_OF_NAMESPACE", 2)
    monkeypatch.setattr(follower, "_OPENED_A_ROUND", 4)
    for number in range(8):
        bench.follow(pod(f"many-{number}"), job=f"many-{number}", namespace="noisy")
    bench.follow(pod("single"), job="single", namespace="quiet")
    bench.follower.run_round()
    asked = [bench.server.asked() for _ in range(4)]
    assert [each.query.get("follow") for each in asked if each.path.endswith("/single/log")] == ["true"]
    assert [each.query.get("follow") for each in asked].count("true") == 3


def test_the_thread_follows_sleeps_and_stops(tmp_path: Path) -> None:
    with LogServer() as server:
        clock, told = RealClock(), list[str]()
        follower = LogFollower(Connector(server.config(tmp_path), clock), told.append, clock)
        follower.start()
        follower.follow("ns/job", "u-job", pod(), "trainer", NAMES)
        asked = server.asked().begin()
        asked.say(line(1, "loss=1"))
        eventually(lambda: told)
        eventually(lambda: follower.metrics_of("u-job").get("loss") == at("1", 1))
        follower.follow("ns/job", "u-job", pod(state=ENDED), "trainer", NAMES)
        asked.end()
        last = server.asked().begin()
        last.say(line(2, "loss=0.5"))
        last.end()
        eventually(lambda: follower.has_read_all("u-job"))
        assert follower.metrics_of("u-job")["loss"] == at("0.5", 2)
        assert follower.stop(60.0)
        assert follower.restarts == 0


def test_the_thread_does_not_wake_while_nobody_logs(tmp_path: Path) -> None:
    with LogServer() as server:
        clock = RealClock()
        follower = LogFollower(Connector(server.config(tmp_path), clock), str, clock)
        follower.start()
        follower.follow("ns/job", "u-job", pod(), "trainer", NAMES)
        server.asked().begin()
        eventually(lambda: follower.statistics().open == 1)
        # The head of the answer, and whatever the start takes.
        eventually(lambda: follower.statistics().rounds >= 2)
        assert follower._due_at() - clock.monotonic() > 60.0
        assert follower.stop(60.0)


# The log of the container that saves checkpoints


def said(second: int, step: int) -> bytes:
    time = f"2026-01-01T00:00:{second:02d}Z"
    told = {"name": f"c-{step}", "step": step, "time": time, "bytes": 1, "uri": "s3://b", "uploadId": f"{step:032x}"}
    return line(second, json.dumps({"checkpoint": {**told, "seconds": 1.0}}))


def saving_pod(state: ContainerState = RUNS, name: str = "p") -> Pod:
    made = pod(name)
    saver = ContainerStatus("checkpoint-save", state=state)
    return replace(made, status=replace(made.status, init_container_statuses=(saver,)))


def follow_both(bench: Bench, followed: Pod) -> tuple[Asked, Asked]:
    """The requests of the two logs."""
    bench.follow(followed)
    bench.follower.follow_checkpoints("ns/job", "u-job", followed, "checkpoint-save")
    bench.follower.run_round()
    both = {each.query["container"]: each for each in (bench.server.asked(), bench.server.asked())}
    return both["trainer"], both["checkpoint-save"]


def steps(bench: Bench) -> list[int | None]:
    lines = bench.follower.checkpoint_lines_of("u-job")
    return [each.step for each in lines if isinstance(each, SavedCheckpoint)]


def test_the_log_of_an_init_container_is_followed_beside_that_of_the_program(bench: Bench) -> None:
    program, saver = follow_both(bench, saving_pod())
    program.begin().say(line(1, "loss=3"))
    saver.begin().say(line(1, "loss=9"), said(2, 10), said(3, 20))
    bench.until(lambda: bool(bench.metrics()) and bool(steps(bench)))
    assert bench.metrics() == {"loss": at("3", 1)}
    assert steps(bench) == [10, 20]
    assert bench.follower.statistics().open == 2


def test_the_two_logs_of_a_job_end_one_by_one(bench: Bench) -> None:
    _, saver = follow_both(bench, saving_pod())
    assert not bench.follower.has_read_checkpoints("u-job")
    saver.begin().end()
    bench.until(lambda: bench.follower.statistics().open == 1)
    bench.follower.follow_checkpoints("ns/job", "u-job", saving_pod(ENDED), "checkpoint-save")
    bench.follower.run_round()
    asked = bench.server.asked()
    assert asked.query["container"] == "checkpoint-save"
    asked.begin().say(said(4, 30))
    asked.end()
    bench.until(lambda: bench.follower.has_read_checkpoints("u-job"), 0.1)
    assert steps(bench) == [30]
    assert not bench.follower.has_read_all("u-job")


def test_what_an_earlier_pod_has_saved_stays_known(bench: Bench) -> None:
    _, saver = follow_both(bench, saving_pod())
    saver.begin().say(said(2, 10))
    bench.until(lambda: bool(steps(bench)))
    _, later = follow_both(bench, saving_pod(name="q"))
    later.begin().say(said(3, 20))
    bench.until(lambda: len(steps(bench)) == 2)
    assert steps(bench) == [10, 20]
    bench.follower.forget("u-job")
    assert steps(bench) == []


def test_of_lines_without_end_only_the_last_take_memory(bench: Bench) -> None:
    _, saver = follow_both(bench, saving_pod())
    saver.begin().say(*(said(2, step) for step in range(MAX_KEPT_LINES + 50)))
    bench.until(lambda: (steps(bench) or [0])[-1] == MAX_KEPT_LINES + 49)
    saver.say(*(said(3, step) for step in range(1000, 1010)))
    bench.until(lambda: steps(bench)[-1] == 1009)
    assert len(steps(bench)) == MAX_KEPT_LINES
    assert len(bench.follower._logs["u-job", "checkpoints"].log._latest) == MAX_KEPT_LINES
