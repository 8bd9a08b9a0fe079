"""The endpoints over real sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tfjob_controller.flags import BindAddress
from tfjob_controller.httpserver.app import Request
from tfjob_controller.httpserver.server import HttpServer, ListenError
from tfjob_controller.telemetry import endpoints
from tfjob_controller.telemetry.endpoints import LIMITS, RouteResponse, new_server, servers_for, text
from tfjob_controller.util.clock import RealClock

LOOPBACK = BindAddress("127.0.0.1", 0)
WAIT_SECONDS = 60.0


def broken(_: Request) -> RouteResponse:
    raise RuntimeError("s3cr3t")


problems: list[str] = []


@pytest.fixture
def server() -> Iterator[HttpServer]:
    problems.clear()
    routes = {
        "/healthz": endpoints.healthz,
        "/readyz": endpoints.readyz(lambda: problems),
        "/broken": broken,
        "/metrics": endpoints.MetricsRoute(lambda accept: ("text/x", accept.encode())),
        **endpoints.debug_routes({"queue": lambda: {"queued": 3}}),
    }
    made = new_server(LOOPBACK, routes, RealClock())
    made.start()
    yield made
    made.stop()


def get(server: HttpServer, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}", method=method, headers={"Accept": "text/plain"}
    )
    try:
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/healthz", (200, "ok\n"), id="alive"),
        pytest.param("/healthz?verbose=1", (200, "ok\n"), id="a query changes nothing"),
        pytest.param("/readyz", (200, "ok\n"), id="ready"),
        pytest.param("/metrics", (200, "text/plain"), id="metrics see what the scraper accepts"),
        pytest.param("/broken", (500, "internal error: see the log\n"), id="a route's failure stays inside"),
    ],
)
def test_routes_answer(server: HttpServer, path: str, expected: tuple[int, str]) -> None:
    assert get(server, path) == expected


def test_not_ready_says_every_problem(server: HttpServer) -> None:
    problems.extend(["pods: not synced", "jobs.batch: no rights"])
    assert get(server, "/readyz") == (503, "not ready: pods: not synced\nnot ready: jobs.batch: no rights\n")


def test_an_unknown_path_lists_the_known_ones(server: HttpServer) -> None:
    status, body = get(server, "/nothing")
    assert status == 404
    assert "/healthz\n" in body


def test_nothing_can_be_written(server: HttpServer) -> None:
    assert get(server, "/healthz", "POST")[0] == 501


def test_debug_lists_its_pages_and_shows_them(server: HttpServer) -> None:
    assert get(server, "/debug/")[1] == get(server, "/debug")[1] == "/debug/queue\n/debug/threads\n"
    assert json.loads(get(server, "/debug/queue")[1]) == {"queued": 3}
    assert "MainThread" in get(server, "/debug/threads")[1]


def test_connections_that_say_nothing_are_bounded_and_keep_no_probe_out(server: HttpServer) -> None:
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS))
            for _ in range(2 * LIMITS.connections)
        ]
        assert get(server, "/healthz")[0] == 200
        # The oldest has been told that it is over, the youngest has not.
        assert silent[0].recv(1) == b""


@contextlib.contextmanager
def flooding(host: str, port: int, address: str, request: bytes) -> Iterator[None]:
    """Sends a request without end on one connection, once the server does not read it at once."""
    is_slowed, is_over = threading.Event(), threading.Event()

    def flood(client: socket.socket) -> None:
        while not is_over.is_set():
            try:
                client.send(request * 1000)
            except BlockingIOError:
                is_slowed.set()
                is_over.wait(0.001)
            with contextlib.suppress(BlockingIOError):
                client.recv(1_000_000)

    with socket.create_connection((host, port), WAIT_SECONDS, (address, 0)) as client:
        client.setblocking(False)
        thread = threading.Thread(target=flood, args=(client,))
        thread.start()
        try:
            assert is_slowed.wait(WAIT_SECONDS)
            yield
        finally:
            is_over.set()
            thread.join()


def test_probes_are_answered_by_another_server_than_metrics() -> None:
    """A server has a thread and an event loop."""
    hosts = BindAddress("127.0.0.1", 0), BindAddress("127.0.0.2", 0)
    routes = {"/healthz": endpoints.healthz}, {"/metrics": lambda _: endpoints.text("a_total 1\n" * 10_000)}
    health, metrics = servers_for(list(zip(hosts, routes, strict=True)), RealClock())
    with contextlib.ExitStack() as stack:
        for server in (health, metrics):
            stack.callback(server.stop)
            server.start()
        stack.enter_context(flooding("127.0.0.2", metrics.port, "127.0.0.3", b"GET /metrics HTTP/1.1\r\n\r\n"))
        for _ in range(10):
            assert get(health, "/healthz")[0] == 200


def test_connections_that_come_at_once_wait_for_the_accepting_thread_and_are_not_lost() -> None:
    server = new_server(BindAddress("127.0.0.1", 0), {"/healthz": endpoints.healthz}, RealClock())
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        for _ in range(LIMITS.connections):  # a lost one is tried again by the kernel, for longer than this waits
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS))
        server.start()
        assert get(server, "/healthz")[0] == 200


def test_a_client_that_goes_in_the_middle_of_its_answer_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    asked, gone = threading.Event(), threading.Event()

    def large(_: Request) -> RouteResponse:
        asked.set()
        gone.wait(10.0)
        return RouteResponse(b"x" * 10_000_000)

    made = new_server(LOOPBACK, {"/large": large, "/healthz": endpoints.healthz}, RealClock())
    made.start()
    with socket.create_connection(("127.0.0.1", made.port)) as client:
        client.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert asked.wait(10.0)
        # Closing without lingering sends a reset.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.set()
    assert get(made, "/healthz") == (200, "ok\n")
    made.stop()
    assert capfd.readouterr().err == ""


def test_an_address_in_use_is_named(server: HttpServer) -> None:
    with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{server.port}: "):
        new_server(BindAddress("127.0.0.1", server.port), {}, RealClock())


def test_stop_frees_the_address_and_leaves_no_thread() -> None:
    before = {thread.name for thread in threading.enumerate()}
    first = new_server(LOOPBACK, {"/healthz": endpoints.healthz}, RealClock())
    first.start()
    port = first.port
    first.stop()
    assert {thread.name for thread in threading.enumerate()} == before
    new_server(BindAddress("127.0.0.1", port), {}, RealClock()).stop()


def test_the_same_address_shares_a_server_and_none_is_no_server() -> None:
    servers = servers_for(
        [(LOOPBACK, {"/a": lambda _: text("a")}), (None, {}), (LOOPBACK, {"/b": lambda _: text("b")})],
        RealClock(),
    )
    assert len(servers) == 1
    servers[0].start()
    try:
        assert get(servers[0], "/a")[1] + get(servers[0], "/b")[1] == "ab"
    finally:
        servers[0].stop()


def test_metrics_are_rendered_for_a_tenth_of_the_time_and_never_before_their_request() -> None:
    paused: list[float] = []
    rendered: list[str] = []

    def slow(accept: str) -> tuple[str, bytes]:
        rendered.append(accept)
        threading.Event().wait(0.05)
        return "text/x", b"%d" % len(rendered)

    def request(accept: bytes = b"text/plain", age: float = 0.0) -> Request:
        return Request(b"GET", b"/metrics", b"", False, False, time.monotonic() - age, accept)

    route = endpoints.MetricsRoute(slow, paused.append)
    assert route(request()).body == b"1"
    # One that came before that rendering began is answered by it; one that came since needs another, after a pause.
    assert route(request(age=10.0)).body == b"1"
    assert route(request()).body == b"2"
    assert paused[0] == 0.0
    assert paused[1] > 0.3
    # Another format is another rendering; any other difference of the header is none.
    assert route(request(b"application/openmetrics-text; version=1.0.0", age=10.0)).body == b"3"
    assert route(request(b"text/plain; q=0.1", age=10.0)).body == b"2"
