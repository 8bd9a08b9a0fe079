"""The rules of gangscheduler/binding/binder.py, against an API server that fails as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from helpers.answering import Answering, Request
from helpers.poll import eventually
from helpers.scripted import PatientClock
from tfjob_controller.gangscheduler.binding.binder import Binder, RejectBinding
from tfjob_controller.gangscheduler.bindrequests import POD_DELETED, STOPPING, BindRequest
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.util.clock import RealClock

POD = BindRequest("ns", "p", "uid-1", "n1")
DEADLINE = 40.0

CONFLICT = ApiError(409, "Conflict", "pod p is already assigned")
NOT_FOUND = ApiError(404, "NotFound", 'pods "p" not found')
TOO_MANY = ApiError(429, "TooManyRequests", "later", retry_after_seconds=3.0)
BROKEN = ApiError(500, "InternalError", "etcd", outcome_unknown=True)
SILENT = ApiError(0, "", "timed out", outcome_unknown=True)
FORBIDDEN = ApiError(403, "Forbidden", "you may not")
INVALID = ApiError(422, "Invalid", "no such thing")


class Api(Answering):
    """Plays a script: what each POST does (an error, or None for success) and what each GET finds."""

    def __init__(self, posts: list[ApiError | None], gets: Sequence[ApiError | bytes] = ()) -> None:
        super().__init__()
        self._posts, self._gets = [*posts], [*gets]

    def answer(self, request: Request) -> bytes:
        assert request.retry is False, "the transport must not try again on its own"
        answer = self._posts.pop(0) if request.method == "POST" else self._gets.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer or b"{}"

    @property
    def methods(self) -> list[str]:
        return [request.method for request in self.sent]


class Results:
    def __init__(self) -> None:
        self.errors: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def __call__(self, pod: BindRequest, error: str) -> None:
        with self._lock:
            self.errors.setdefault(pod.uid, []).append(error)

    def of(self, uid: str = POD.uid) -> str:
        """The one result of this pod."""
        [error] = eventually(lambda: self.errors.get(uid))
        return error


def found(uid: str = POD.uid, node: str = "", **metadata: str) -> bytes:
    return json.dumps({"metadata": {"name": "p", "uid": uid, **metadata}, "spec": {"nodeName": node}}).encode()


class Waits:
    """A clock whose conditions wait no longer than it takes to move it: rests are over at once."""

    def __init__(self) -> None:
        self.clock = PatientClock()
        self.waited: list[float] = []

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def now(self) -> Any:
        return self.clock.now()

    def sleep(self, seconds: float, stop: threading.Event) -> bool:
        return self.clock.sleep(seconds, stop)

    def wait(self, condition: threading.Condition, timeout_seconds: float | None) -> None:
        if timeout_seconds is None:
            condition.wait()
            return
        self.waited.append(timeout_seconds)
        self.clock.advance(timeout_seconds)


def bind(api: Api, rejection: RejectBinding = lambda _: "") -> tuple[str, Waits]:
    """Bind the pod; its result, and how long was rested."""
    results, clock = Results(), Waits()
    binder = Binder(api, clock, threads=1, deadline_seconds=DEADLINE)
    binder.start()
    try:
        binder.submit([POD], results, rejection)
        return results.of(), clock
    finally:
        assert binder.stop()


def test_a_binding_names_its_pod_and_its_node() -> None:
    api = Api([None])
    assert bind(api)[0] == ""
    assert [(each.method, each.path) for each in api.sent] == [("POST", "/api/v1/namespaces/ns/pods/p/binding")]
    assert [each.body for each in api.sent] == [
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "p", "namespace": "ns", "uid": "uid-1"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        }
    ]


@pytest.mark.parametrize(
    ("posts", "gets", "error", "methods"),
    [
        pytest.param([CONFLICT], [found(node="n1")], "", "POST GET", id="409, it is bound as wanted"),
        pytest.param(
            [CONFLICT], [found(node="n2")], "the pod is bound to another node", "POST GET", id="409, it is elsewhere"
        ),
        pytest.param([CONFLICT], [found("uid-2", "n1")], POD_DELETED, "POST GET", id="409, a new pod of that name"),
        pytest.param([CONFLICT], [NOT_FOUND], POD_DELETED, "POST GET", id="409, gone meanwhile"),
        pytest.param(
            [CONFLICT], [found(deletionTimestamp="2026-01-01T00:00:00Z")], POD_DELETED, "POST GET", id="409, it ends"
        ),
        pytest.param([CONFLICT, None], [found()], "", "POST GET POST", id="409, it is still to be bound"),
        pytest.param([NOT_FOUND], [], POD_DELETED, "POST", id="404"),
        pytest.param([TOO_MANY, None], [found()], "", "POST GET POST", id="429"),
        pytest.param([BROKEN, None], [found()], "", "POST GET POST", id="500"),
        pytest.param([SILENT], [found(node="n1")], "", "POST GET", id="time-out after success"),
        pytest.param([SILENT, CONFLICT], [found(), found(node="n1")], "", "POST GET POST GET", id="late success"),
        pytest.param([SILENT], [SILENT, BROKEN, found(node="n1")], "", "POST GET GET GET", id="nor can it be read"),
        pytest.param([SILENT], [b"<html>", found(node="n1")], "", "POST GET GET", id="the answer is no pod"),
    ],
)
def test_a_binding_goes_on_until_its_outcome_is_known(
    posts: list[ApiError | None], gets: list[ApiError | bytes], error: str, methods: str
) -> None:
    api = Api(posts, gets)
    assert bind(api)[0] == error
    assert api.methods == methods.split()


@pytest.mark.parametrize(
    ("posts", "gets", "error", "methods"),
    [
        pytest.param([TOO_MANY], [found()], "no room", "POST GET", id="not bound"),
        pytest.param([TOO_MANY], [found(node="n1")], "", "POST GET", id="bound already"),
        pytest.param([CONFLICT], [found()], "no room", "POST GET", id="in conflict"),
    ],
)
def test_a_binding_is_not_retried_after_an_objection(
    posts: list[ApiError | None], gets: list[ApiError | bytes], error: str, methods: str
) -> None:
    api = Api(posts, gets)
    assert bind(api, lambda pod: "no room" if pod == POD and api.sent else "")[0] == error
    assert api.methods == methods.split()


def test_a_binding_is_not_posted_after_an_objection() -> None:
    """Those of a large gang are posted one after the other: a node may be full before it is the turn of the last."""
    api = Api([])
    assert bind(api, lambda _: "no room")[0] == "no room"
    assert api.sent == []


@pytest.mark.parametrize("refusal", [FORBIDDEN, INVALID], ids=lambda error: error.reason)
def test_what_no_retry_can_mend_ends_at_once(refusal: ApiError) -> None:
    api = Api([refusal])
    assert bind(api)[0] == f"the API server refused the Binding: {refusal}"
    assert api.methods == ["POST"]


def test_a_conflict_is_examined_without_a_delay() -> None:
    assert bind(Api([CONFLICT], [found(node="n1")]))[1].waited == []


def test_the_server_sets_the_delay_of_a_retry() -> None:
    _, clock = bind(Api([TOO_MANY, None], [found()]))
    assert sum(clock.waited) >= 3.0


def test_it_ends_at_its_deadline() -> None:
    error, clock = bind(Api([BROKEN] * 1000, [found()] * 1000))
    assert error.startswith("the Binding did not succeed in time: etcd")
    assert DEADLINE / 2 < sum(clock.waited) < DEADLINE


class Slow(Answering):
    """Answers when it is let; remembers the order."""

    def __init__(self) -> None:
        super().__init__()
        self.permits = threading.Semaphore(0)

    @property
    def order(self) -> list[str]:
        return [request.path.split("/")[-2] for request in self.sent]

    def answer(self, request: Request) -> bytes:
        self.permits.acquire(timeout=10.0)
        if request.path.split("/")[-2].startswith("bad"):
            raise BROKEN
        return b"{}"


def pods(gang: str, count: int) -> list[BindRequest]:
    return [BindRequest("ns", f"{gang}-{number}", f"uid-{gang}-{number}", "n1") for number in range(count)]


@pytest.fixture
def slow() -> Iterator[tuple[Slow, Binder]]:
    api = Slow()
    binder = Binder(api, RealClock(), threads=4)
    binder.start()
    yield api, binder
    api.permits.release(1000)
    assert binder.stop()


def test_the_pods_of_a_gang_are_in_progress_together_and_one_gang_after_the_other(slow: tuple[Slow, Binder]) -> None:
    api, binder = slow
    results = Results()
    binder.submit(pods("a", 6), results)
    binder.submit(pods("b", 6), results)
    eventually(lambda: len(api.order) == 4)
    for taken in range(5, 13):
        api.permits.release()
        eventually(lambda taken=taken: len(api.order) >= taken)  # type: ignore[misc]  # a loop's own lambda
    assert [name[0] for name in api.order] == ["a"] * 6 + ["b"] * 6


def test_a_pod_that_fails_keeps_no_thread_from_the_others(slow: tuple[Slow, Binder]) -> None:
    api, binder = slow
    api.permits.release(1000)
    results = Results()
    binder.submit(pods("bad", 8), results)
    binder.submit(pods("good", 8), results)
    for pod in pods("good", 8):
        assert results.of(pod.uid) == ""
    assert not results.errors.keys() & {pod.uid for pod in pods("bad", 8)}


def test_what_was_not_posted_when_it_stops_is_answered_with_an_error(slow: tuple[Slow, Binder]) -> None:
    api, binder = slow
    results = Results()
    binder.submit(pods("a", 6), results)
    eventually(lambda: len(api.order) == 4)
    assert not binder.stop(0.01), "four are still under way"
    assert [results.of(f"uid-a-{number}") for number in (4, 5)] == [STOPPING, STOPPING]
    api.permits.release(4)
    assert [results.of(f"uid-a-{number}") for number in range(4)] == [""] * 4
    binder.submit(pods("late", 1), results)
    assert results.of("uid-late-0") == STOPPING


def test_a_fault_of_ours_is_answered_and_the_thread_lives_on() -> None:
    class Faulty(Answering):
        def answer(self, request: Request) -> bytes:
            if "bad" in request.path:
                raise ValueError("a bug")
            return b"{}"

    binder, results = Binder(Faulty(), RealClock(), threads=1), Results()
    binder.start()
    binder.submit([*pods("bad", 1), *pods("good", 1)], results)
    assert "internal error" in results.of("uid-bad-0")
    assert results.of("uid-good-0") == ""
    assert binder.restarts == 1
    assert binder.stop()
