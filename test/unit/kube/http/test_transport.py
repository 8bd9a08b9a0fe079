"""The rules of kube/http/transport.py and kube/http/linestream.py, over real sockets."""

from __future__ import annotations

import contextlib
import contextvars
import gzip
import itertools
import logging
import socket
import threading
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog

from helpers.barekubeconfig import write_kubeconfig
from helpers.httpserver import Answer, HttpServer, Request, Respond, status_answer
from helpers.poll import eventually
from helpers.scripted import PatientClock
from localcluster.faultproxy import FaultProxy, LoseAnswer, LoseRequest, Reply
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.errors import NO_RESPONSE, RESPONSE_TOO_LARGE, ApiError
from tfjob_controller.kube.flowcontrol import Priority
from tfjob_controller.kube.http.linestream import HttpLineStream
from tfjob_controller.kube.http.transport import Transport, default_user_agent
from tfjob_controller.kube.requester import MERGE_PATCH
from tfjob_controller.kube.trace import Trace, use_trace

TOKEN = "s3cr3t-t0ken"
PATH = "/api/v1/namespaces/d/pods"
QUERY = {"watch": "true"}
WAIT_SECONDS = 60.0


class Watcher:
    """An Observer that remembers."""

    def __init__(self) -> None:
        self.finished: list[tuple[str, str, str]] = []
        self.retried: list[tuple[str, str, str]] = []
        self.waited_seconds: list[float] = []

    def request_finished(self, method: str, host: str, code: str, seconds: float) -> None:
        assert seconds >= 0
        self.finished.append((method, host, code))

    def request_retried(self, method: str, host: str, code: str) -> None:
        self.retried.append((method, host, code))

    def rate_limited(self, method: str, host: str, seconds: float) -> None:
        self.waited_seconds.append(seconds)


class Net:
    """Servers, proxies before them, and transports to them, which all end with the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends = contextlib.ExitStack()
        self._files = itertools.count()
        # Holds back answers; opened at the end of the test, so that no server thread stays.
        self.gate = threading.Event()

    def serve(self, respond: Respond) -> HttpServer:
        return self._ends.enter_context(HttpServer(respond))

    def proxy(self, server: HttpServer) -> FaultProxy:
        return self._ends.enter_context(FaultProxy(server.url))

    def connect(self, url: str, user: dict[str, str] | None = None, **options: Any) -> Transport:
        """A transport to a server's URL. Without a limit unless the test sets one."""
        path = self._folder / f"kubeconfig-{next(self._files)}"
        kubeconfig = write_kubeconfig(path, {"server": url}, {"token": TOKEN} if user is None else user)
        loaded = load_config(kubeconfig, clock=options.get("clock"))
        return self._ends.enter_context(contextlib.closing(Transport(loaded, **({"qps": 0} | options))))

    def held_back(self, request: Request) -> Answer:
        """Answers once the gate is open."""
        self.gate.wait(WAIT_SECONDS)
        return Answer()

    def held_after(self, *lines: bytes) -> Respond:
        """Sends these lines at once, and nothing more until the gate is open."""

        def chunks() -> Iterator[bytes]:
            yield from lines
            self.gate.wait(WAIT_SECONDS)

        return lambda request: Answer(chunks=chunks())

    def close(self) -> None:
        self.gate.set()
        self._ends.close()


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    net = Net(tmp_path)
    yield net
    net.close()


def ok(request: Request) -> Answer:
    return Answer(200, b'{"ok":1}')


def in_turn(*answers: Answer) -> Respond:
    """One answer after the other; the last one for ever."""
    left = list(answers)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


def failure(call: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value


class TestServerTime:
    def test_it_is_that_of_the_last_response_and_passes_with_the_clock(self, net: Net) -> None:
        clock, date = PatientClock(), {"Date": "Thu, 01 Jan 2026 12:00:00 GMT"}
        transport = net.connect(net.serve(in_turn(Answer(404, headers=date))).url, clock=clock)
        assert transport.server_time() is None
        failure(lambda: transport.request("GET", PATH))
        clock.advance(90)
        assert transport.server_time() == datetime(2026, 1, 1, 12, 1, 30, tzinfo=UTC)

    def test_a_response_that_took_long_does_not_count(self, net: Net) -> None:
        clock, dates = PatientClock(), iter(("12:00:00", "12:00:01"))

        def respond(_: Request) -> Answer:
            date = next(dates)
            if date == "12:00:01":
                clock.advance(30)
            return Answer(headers={"Date": f"Thu, 01 Jan 2026 {date} GMT"})

        transport = net.connect(net.serve(respond).url, clock=clock)
        transport.request("GET", PATH)
        transport.request("GET", PATH)
        assert transport.server_time() == datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)

    def test_a_response_with_another_text_has_none(self, net: Net) -> None:
        transport = net.connect(net.serve(in_turn(Answer(headers={"Date": "noon"}))).url)
        transport.request("GET", PATH)
        assert transport.server_time() is None


class TestWhatIsSent:
    def test_a_read(self, net: Net) -> None:
        server = net.serve(ok)
        assert net.connect(server.url).request("GET", PATH, query={"labelSelector": "a=b,c!=d"}) == b'{"ok":1}'
        (seen,) = server.requests
        assert (seen.method, seen.path, seen.query) == ("GET", PATH, {"labelSelector": "a=b,c!=d"})
        assert seen.headers["authorization"] == f"Bearer {TOKEN}"
        assert seen.headers["user-agent"] == default_user_agent()
        assert (seen.headers["accept"], seen.headers["accept-encoding"]) == ("application/json", "gzip")
        assert "content-type" not in seen.headers

    def test_a_write_has_just_the_content_type_that_it_was_given(self, net: Net) -> None:
        server = net.serve(ok)
        net.connect(server.url, user_agent="mine/1").request("PATCH", PATH, body=b"[]", content_type=MERGE_PATCH)
        (seen,) = server.requests
        assert (seen.body, seen.headers["content-type"]) == (b"[]", MERGE_PATCH)
        assert seen.headers["user-agent"] == "mine/1"

    def test_nobody_shows_no_authorization(self, net: Net) -> None:
        server = net.serve(ok)
        net.connect(server.url, user={}).request("GET", PATH)
        assert "authorization" not in server.requests[0].headers

    def test_the_user_agent_names_program_system_and_python(self) -> None:
        program, system, python = default_user_agent().split(" ")
        assert program.startswith("tfjob-controller/")
        assert system.startswith("(")
        assert python.startswith("python/3.")

    def test_a_redirect_is_not_followed_for_the_token_would_go_with_it(self, net: Net) -> None:
        other = net.serve(ok)
        server = net.serve(in_turn(Answer(307, b"", {"Location": other.url + PATH})))
        assert failure(lambda: net.connect(server.url).request("GET", PATH)).status == 307
        assert other.requests == []


class TestConnections:
    def test_there_are_never_more_than_the_pools_size(self, net: Net) -> None:
        server = net.serve(ok)
        transport = net.connect(server.url, pool_size=2)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda _: transport.request("GET", PATH), range(64)))
        assert len({request.client for request in server.requests}) <= 2

    def test_a_request_without_a_connection_in_time_was_not_sent(self, net: Net) -> None:
        server = net.serve(net.held_back)
        transport = net.connect(server.url, pool_size=1)
        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(transport.request, "POST", PATH, body=b"{}")
            eventually(lambda: server.requests)
            error = failure(lambda: transport.request("POST", PATH, body=b"{}", timeout_seconds=0.1))
            assert (error.status, error.reason, error.outcome_unknown) == (NO_RESPONSE, "PoolTimeout", False)
            net.gate.set()
            first.result(WAIT_SECONDS)
        assert len(server.requests) == 1

    def test_a_lease_has_its_own_when_all_others_are_busy(self, net: Net) -> None:
        def respond(request: Request) -> Answer:
            if request.method == "POST":
                net.gate.wait(WAIT_SECONDS)
            return Answer()

        server = net.serve(respond)
        transport = net.connect(server.url, pool_size=2)
        with ThreadPoolExecutor(4) as threads:
            busy = [threads.submit(transport.request, "POST", PATH, body=b"{}") for _ in range(4)]
            eventually(lambda: len(server.requests) == 2)
            transport.request("PUT", "/lease", body=b"{}", priority=Priority.LEASE, timeout_seconds=5.0)
            net.gate.set()
            assert [call.result(WAIT_SECONDS) for call in busy] == [b"{}"] * 4

    def test_a_plugins_new_certificate_means_new_connections(self, net: Net) -> None:
        server = net.serve(ok)
        transport = net.connect(server.url)
        transport.request("GET", PATH)
        transport._credentials.certificate_generation += 1  # what a plugin's new certificate does
        transport.request("GET", PATH)
        transport.request("GET", PATH)
        first, second, third = (request.client for request in server.requests)
        assert first != second == third


class TestFailures:
    def test_a_status_is_reported_with_the_servers_message(self, net: Net) -> None:
        server = net.serve(in_turn(status_answer(409, "AlreadyExists", 'pods "a" already exists')))
        error = failure(lambda: net.connect(server.url).request("POST", PATH, body=b"{}"))
        assert error.is_already_exists
        assert error.message == 'pods "a" already exists'
        assert not error.outcome_unknown

    def test_the_error_page_of_a_proxy_is_reported_with_its_text(self, net: Net) -> None:
        server = net.serve(in_turn(Answer(502, b"<h1>Bad\ngateway</h1>")))
        error = failure(lambda: net.connect(server.url).request("POST", PATH, body=b"{}"))
        assert (error.status, error.message, error.outcome_unknown) == (502, "<h1>Bad gateway</h1>", True)

    def test_a_server_that_is_not_there_was_sent_nothing(self, net: Net) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        error = failure(lambda: net.connect(f"http://127.0.0.1:{port}").request("POST", PATH, body=b"{}"))
        assert (error.status, error.reason, error.outcome_unknown) == (NO_RESPONSE, "NotConnected", False)
        assert str(error) == (
            f"127.0.0.1:{port}: cannot connect: [Errno 111] Connection refused (no answer NotConnected)"
        )

    def test_a_name_that_nobody_knows(self, net: Net) -> None:
        error = failure(lambda: net.connect("http://no-such-host.invalid").request("POST", PATH, body=b"{}"))
        assert (error.reason, error.outcome_unknown) == ("NotConnected", False)

    def test_a_server_that_takes_no_connections_is_given_up(self, net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tfjob_controller.kube.http.connectionpool.CONNECT_TIMEOUT_SECONDS", 0.2)
        with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
            fillers = [socket.socket() for _ in range(3)]  # the queue of a listener that never accepts
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            begin = time.monotonic()
            error = failure(lambda: net.connect(url).request("POST", PATH, body=b"{}"))
            # The kernel would go on for two minutes.
            assert time.monotonic() - begin < WAIT_SECONDS
            assert (error.reason, error.outcome_unknown) == ("NotConnected", False)
            for filler in fillers:
                filler.close()

    @pytest.mark.parametrize(("method", "unknown"), [("POST", True), ("GET", False)])
    def test_silence_ends_with_the_time_and_a_writes_outcome_is_unknown(
        self, net: Net, method: str, unknown: bool
    ) -> None:
        server = net.serve(net.held_back)
        error = failure(lambda: net.connect(server.url).request(method, PATH, timeout_seconds=0.2))
        assert (error.status, error.reason, error.outcome_unknown) == (NO_RESPONSE, "Timeout", unknown)
        assert len(server.requests) == 1

    def test_a_lost_answer_to_a_write_is_an_unknown_outcome_and_the_write_is_not_sent_again(self, net: Net) -> None:
        server = net.serve(ok)
        proxy = net.proxy(server)
        proxy.next(LoseAnswer())
        error = failure(lambda: net.connect(proxy.url).request("POST", PATH, body=b"{}"))
        assert (error.reason, error.outcome_unknown) == ("ConnectionBroken", True)
        assert len(server.requests) == 1


class TestRetries:
    def test_the_server_may_request_a_retry_of_any_request(self, net: Net) -> None:
        clock = PatientClock()
        server = net.serve(in_turn(status_answer(503, "ServiceUnavailable", Retry_After="7"), Answer()))
        assert net.connect(server.url, clock=clock).request("POST", PATH, body=b"{}") == b"{}"
        assert clock.slept == [7.0]
        assert [request.body for request in server.requests] == [b"{}"] * 2

    def test_a_write_is_not_sent_again_after_a_fault_of_the_server(self, net: Net) -> None:
        server = net.serve(in_turn(Answer(500), Answer()))
        failure(lambda: net.connect(server.url, clock=PatientClock()).request("DELETE", PATH, body=b"{}"))
        assert len(server.requests) == 1

    def test_but_the_caller_may_say_that_it_can_be(self, net: Net) -> None:
        proxy = net.proxy(net.serve(ok))
        proxy.next(LoseAnswer())
        proxy.next(Reply(500))
        net.connect(proxy.url, clock=PatientClock()).request("DELETE", PATH, retry=True)
        assert len(proxy.seen) == 3

    def test_or_that_nothing_is_to_be_sent_again(self, net: Net) -> None:
        server = net.serve(in_turn(status_answer(429, "TooManyRequests", Retry_After="1"), Answer()))
        failure(lambda: net.connect(server.url, clock=PatientClock()).request("GET", PATH, retry=False))
        assert len(server.requests) == 1

    def test_ten_retries_are_the_most(self, net: Net) -> None:
        server = net.serve(in_turn(status_answer(429, "TooManyRequests", Retry_After="0")))
        transport = net.connect(server.url, clock=PatientClock())
        assert failure(lambda: transport.request("GET", PATH)).is_too_many_requests
        assert len(server.requests) == 11
        assert (transport.statistics().requests, transport.statistics().retries) == (11, 10)

    def test_the_calls_time_is_for_all_attempts_together(self, net: Net) -> None:
        clock = PatientClock()
        server = net.serve(in_turn(Answer(500)))
        failure(lambda: net.connect(server.url, clock=clock).request("GET", PATH, timeout_seconds=1.0))
        assert sum(clock.slept) < 1.0
        assert 1 < len(server.requests) < 11

    def test_a_stale_connection_costs_a_read_nothing(self, net: Net) -> None:
        proxy = net.proxy(net.serve(ok))
        transport = net.connect(proxy.url)
        transport.request("GET", PATH)
        proxy.cut_all()
        assert transport.request("GET", PATH) == b'{"ok":1}'


class TestRefusedCredentials:
    def test_new_ones_are_tried_once(self, net: Net, tmp_path: Path) -> None:
        def respond(request: Request) -> Answer:
            fresh = request.headers["authorization"] == "Bearer new"
            return Answer() if fresh else status_answer(401, "Unauthorized")

        clock, file, server = PatientClock(), tmp_path / "token", net.serve(respond)
        file.write_text("old")
        transport = net.connect(server.url, {"tokenFile": str(file)}, clock=clock)
        file.write_text("new")
        clock.sleep(30.0, threading.Event())
        assert transport.request("POST", PATH, body=b"{}") == b"{}"
        assert len(server.requests) == 2

    def test_the_same_again_is_final(self, net: Net) -> None:
        server = net.serve(in_turn(status_answer(401, "Unauthorized")))
        transport = net.connect(server.url)
        assert failure(lambda: transport.request("GET", PATH)).is_unauthorized
        assert len(server.requests) == 1


class TestRateLimit:
    def test_requests_retries_and_streams_take_tokens(self, net: Net) -> None:
        def respond(request: Request) -> Answer:
            if request.query:
                return Answer(chunks=[b"a\n"])
            return Answer() if len(server.requests) != 2 else status_answer(429, "TooManyRequests", Retry_After="0")

        clock, watcher, server = PatientClock(), Watcher(), net.serve(respond)
        transport = net.connect(server.url, qps=10.0, burst=1, clock=clock, observer=watcher)
        transport.request("GET", PATH)
        transport.request("GET", PATH)  # refused, and sent again
        with transport.stream(PATH, query={"watch": "1"}, read_timeout_seconds=5.0):
            pass
        assert watcher.waited_seconds == pytest.approx([0.0, 0.1, 0.1, 0.1])

    def test_a_lease_does_not_wait(self, net: Net) -> None:
        clock = PatientClock()
        transport = net.connect(net.serve(ok).url, qps=0.001, burst=1, clock=clock)
        transport.request("GET", PATH)
        transport.request("PUT", "/lease", body=b"{}", priority=Priority.LEASE)
        assert clock.slept == []

    def test_waiting_is_not_part_of_the_calls_time(self, net: Net) -> None:
        transport = net.connect(net.serve(ok).url, qps=0.01, burst=1, clock=PatientClock())
        transport.request("GET", PATH)
        assert transport.request("GET", PATH, timeout_seconds=1.0) == b'{"ok":1}'


class TestStreams:
    def test_lines_come_as_the_server_sends_them(self, net: Net) -> None:
        def chunks() -> Iterator[bytes]:
            yield b"one\n"
            net.gate.wait(WAIT_SECONDS)
            yield b"two\n"

        server = net.serve(lambda request: Answer(chunks=chunks()))
        with net.connect(server.url).stream(PATH, query=QUERY, read_timeout_seconds=5.0) as stream:
            lines = iter(stream)
            assert next(lines) == b"one"
            net.gate.set()
            assert list(lines) == [b"two"]
        assert server.requests[0].query == QUERY
        assert server.requests[0].headers["accept-encoding"] == "identity"

    def test_silence_longer_than_the_read_time_out_is_noticed(self, net: Net) -> None:
        server = net.serve(net.held_after(b"one\n"))
        with net.connect(server.url).stream(PATH, query=QUERY, read_timeout_seconds=0.2) as stream:
            lines = iter(stream)
            next(lines)
            error = failure(lambda: next(lines))
        assert (error.status, error.reason) == (NO_RESPONSE, "Timeout")

    def test_a_connection_that_is_cut_is_noticed(self, net: Net) -> None:
        proxy = net.proxy(net.serve(net.held_after(b"one\n")))
        with net.connect(proxy.url).stream(PATH, query=QUERY, read_timeout_seconds=5.0) as stream:
            lines = iter(stream)
            next(lines)
            proxy.cut_all()
            error = failure(lambda: next(lines))
        assert (error.status, error.reason) == (NO_RESPONSE, "ConnectionBroken")

    @pytest.mark.parametrize("by", ["stream", "transport"])
    def test_another_thread_can_end_one_that_is_blocked(self, net: Net, by: str) -> None:
        transport = net.connect(net.serve(net.held_after(b"one\n")).url)
        stream = transport.stream(PATH, query=QUERY, read_timeout_seconds=600.0)
        lines: list[bytes] = []
        with ThreadPoolExecutor(1) as threads:
            reading = threads.submit(lambda: lines.extend(stream))
            eventually(lambda: lines and stream._reading.locked())
            begin = time.monotonic()
            (stream if by == "stream" else transport).close()
            reading.result(WAIT_SECONDS)
            # The server would end it after that time.
            assert time.monotonic() - begin < WAIT_SECONDS / 2
        assert lines == [b"one"]
        assert transport.statistics().open_streams == 0

    def test_one_that_cannot_be_opened_says_why_at_once(self, net: Net) -> None:
        server = net.serve(in_turn(status_answer(429, "TooManyRequests", Retry_After="3")))
        transport = net.connect(server.url)
        error = failure(lambda: transport.stream(PATH, query=QUERY, read_timeout_seconds=5.0))
        assert (error.is_too_many_requests, error.retry_after_seconds) == (True, 3.0)
        assert len(server.requests) == 1
        assert transport.statistics().open_streams == 0

    def test_a_server_that_does_not_even_answer_is_noticed(self, net: Net) -> None:
        server = net.serve(net.held_back)
        error = failure(lambda: net.connect(server.url).stream(PATH, query=QUERY, read_timeout_seconds=0.2))
        assert error.reason == "Timeout"

    def test_streams_and_requests_do_not_wait_for_each_other(self, net: Net) -> None:
        def respond(request: Request) -> Answer:
            if not request.query:
                return Answer()
            return Answer(chunks=iter(lambda: b"" if net.gate.wait(WAIT_SECONDS) else b"x", b""))

        transport = net.connect(net.serve(respond).url, pool_size=1)
        streams: list[HttpLineStream] = [
            transport.stream(PATH, query=QUERY, read_timeout_seconds=5.0) for _ in range(20)
        ]
        assert transport.statistics().open_streams == 20
        assert transport.request("GET", PATH, timeout_seconds=5.0) == b"{}"
        for stream in streams:
            stream.close()
        assert transport.statistics().open_streams == 0

    def test_one_that_ended_leaves_its_connection_to_the_next(self, net: Net) -> None:
        server = net.serve(lambda request: Answer(chunks=[b"one\n"]))
        transport = net.connect(server.url)
        for _ in range(3):
            with transport.stream(PATH, query=QUERY, read_timeout_seconds=5.0) as stream:
                assert list(stream) == [b"one"]
        assert len({request.client for request in server.requests}) == 1


class TestObserver:
    def test_an_observer_is_notified_of_each_attempt_and_of_retries(self, net: Net) -> None:
        watcher = Watcher()
        proxy = net.proxy(net.serve(ok))
        proxy.next(Reply(500))
        proxy.next(LoseAnswer())
        net.connect(proxy.url, observer=watcher, clock=PatientClock()).request("GET", PATH)
        host = proxy.url.removeprefix("http://")
        assert watcher.finished == [("GET", host, "500"), ("GET", host, "<error>"), ("GET", host, "200")]
        assert watcher.retried == [("GET", host, "500"), ("GET", host, "<error>")]


class TestTraces:
    def test_each_attempt_of_a_piece_of_work_has_an_audit_id_of_its_own(self, net: Net) -> None:
        server = net.serve(in_turn(status_answer(500, "InternalError"), Answer()))
        transport = net.connect(server.url, clock=PatientClock())
        with use_trace(Trace("sync-1")):
            transport.request("GET", PATH)
            with ThreadPoolExecutor(1) as threads:
                threads.submit(contextvars.copy_context().run, transport.request, "POST", PATH, body=b"{}").result()
        assert audit_ids(server) == ["sync-1-1", "sync-1-2", "sync-1-3"]

    def test_other_requests_leave_it_to_the_server(self, net: Net) -> None:
        server = net.serve(ok)
        with use_trace(Trace("sync-1")), use_trace(None):
            net.connect(server.url).request("GET", PATH)
        assert audit_ids(server) == [None]

    @pytest.mark.parametrize("verbose", [True, False])
    def test_a_verbose_one_logs_each_attempt(self, net: Net, verbose: bool) -> None:
        transport = net.connect(net.serve(ok).url, verbose=verbose)
        with structlog.testing.capture_logs() as logs, use_trace(Trace("sync-1")):
            transport.request("GET", PATH, query={"limit": "1"})
        line = {"verb": "GET", "path": f"{PATH}?limit=1", "code": "200", "audit_id": "sync-1-1"}
        expected = [{"event": "request", "log_level": "debug", **line}] if verbose else []
        assert [{key: value for key, value in each.items() if key != "duration_seconds"} for each in logs] == expected
        assert TOKEN not in str(logs)


def audit_ids(server: HttpServer) -> list[str | None]:
    return [request.headers.get("audit-id") for request in server.requests]


class TestClosing:
    def test_a_closed_transport_sends_nothing(self, net: Net) -> None:
        server = net.serve(ok)
        transport = net.connect(server.url)
        transport.close()
        for call in (
            lambda: transport.request("POST", PATH, body=b"{}"),
            lambda: transport.stream(PATH, query={}, read_timeout_seconds=5.0),
        ):
            error = failure(call)
            assert (error.reason, error.outcome_unknown) == ("Closed", False)
        assert server.requests == []

    def test_closing_ends_a_wait_for_a_retry(self, net: Net) -> None:
        server = net.serve(in_turn(status_answer(429, "TooManyRequests", Retry_After="20")))
        transport = net.connect(server.url)
        with ThreadPoolExecutor(1) as threads:
            call = threads.submit(failure, lambda: transport.request("GET", PATH))
            eventually(lambda: server.requests)
            transport.close()
            assert call.result(WAIT_SECONDS).status in (429, NO_RESPONSE)


def test_no_token_is_shown_whatever_happens(net: Net, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    proxy = net.proxy(net.serve(ok))
    transport = net.connect(proxy.url)
    shown = [repr(transport), str(vars(transport))]
    for fault in (Reply(401, "Unauthorized"), Reply(500), LoseAnswer(), LoseRequest()):
        proxy.next(fault)
        error = failure(lambda: transport.request("POST", PATH, body=b"{}"))
        shown += [str(error), repr(error), *traceback.format_exception(error)]
    assert TOKEN not in "".join(shown) + caplog.text


MEGABYTE = b" " * 1_000_000


@pytest.mark.parametrize(
    ("header", "warnings"),
    [
        ('299 - "use \\"v2\\", it is stable"', ['use "v2", it is stable']),
        ('299 - "a", 299 kube-apiserver/1.36 "b" "Sun, 06 Nov 1994 08:49:37 GMT", 199 - "other"', ["a", "b"]),
        ("malformed", []),
    ],
)
def test_each_warning_of_a_response_is_reported(net: Net, header: str, warnings: list[str]) -> None:
    reported: list[str] = []
    server = net.serve(lambda _: Answer(headers={"Warning": header}))
    net.connect(server.url, on_warning=reported.append).request("GET", "/x")
    assert reported == warnings


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(body=MEGABYTE * 50), id="plain"),
        pytest.param(Answer(chunks=[MEGABYTE] * 50), id="chunked"),
        pytest.param(Answer(body=gzip.compress(MEGABYTE * 50, 1), headers={"Content-Encoding": "gzip"}), id="gzip"),
    ],
)
def test_a_response_beyond_the_bound_is_refused_before_it_takes_memory(net: Net, answer: Answer) -> None:
    server = net.serve(lambda request: answer if request.path == "/large" else Answer(body=b"ok"))
    transport = net.connect(server.url, max_response_bytes=4_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(ApiError, match="more than 4000000 bytes") as raised:
            transport.request("GET", "/large")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert (raised.value.reason, raised.value.outcome_unknown) == (RESPONSE_TOO_LARGE, False)
    assert len([request for request in server.requests if request.path == "/large"]) == 1
    assert transport.request("GET", "/small") == b"ok"
