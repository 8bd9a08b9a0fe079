"""The ports for probes and metrics, as somebody on the pod network finds them."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.request
from collections.abc import Iterator

import pytest

from tfjob_controller.flags import BindAddress
from tfjob_controller.httpserver.server import HttpServer
from tfjob_controller.telemetry import endpoints
from tfjob_controller.telemetry.endpoints import LIMITS, new_server, servers_for
from tfjob_controller.util.clock import RealClock

PATIENCE_SECONDS = 60.0


@pytest.fixture
def server() -> Iterator[HttpServer]:
    made = new_server(BindAddress("127.0.0.1", 0), {"/healthz": endpoints.healthz}, RealClock())
    made.start()
    yield made
    made.stop()


def is_alive(server: HttpServer) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz", timeout=PATIENCE_SECONDS) as answer:
        return bool(answer.read() == b"ok\n")


def answer_to(server: HttpServer, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as client:
        with contextlib.suppress(OSError):  # whoever is refused early is not read to his end
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            return client.recv(1_000)
    return b""


def test_connections_that_say_nothing_are_bounded_and_keep_no_probe_out(server: HttpServer) -> None:
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS))
            for _ in range(2 * LIMITS.connections)
        ]
        assert is_alive(server)
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

    with socket.create_connection((host, port), PATIENCE_SECONDS, (address, 0)) as client:
        client.setblocking(False)
        thread = threading.Thread(target=flood, args=(client,))
        thread.start()
        try:
            assert is_slowed.wait(PATIENCE_SECONDS)
            yield
        finally:
            is_over.set()
            thread.join()


@pytest.mark.parametrize("address", ["127.0.0.1"], ids=["the address of the probe"])
def test_a_flood_of_valid_requests_delays_no_probe(server: HttpServer, address: str) -> None:
    with flooding("127.0.0.1", server.port, address, b"GET /healthz HTTP/1.1\r\n\r\n"):
        for _ in range(10):
            assert is_alive(server)


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
            assert is_alive(health)


def test_connections_that_come_at_once_wait_for_the_accepting_thread_and_are_not_lost() -> None:
    server = new_server(BindAddress("127.0.0.1", 0), {"/healthz": endpoints.healthz}, RealClock())
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        for _ in range(LIMITS.connections):  # a lost one is tried again by the kernel, for longer than this waits
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS))
        server.start()
        assert is_alive(server)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", id="a length below nothing"),
        pytest.param(b"POST /healthz HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", id="a body that is not taken"),
    ],
)
def test_nonsense_gets_no_success_and_ends_nothing(server: HttpServer, request_: bytes) -> None:
    answer = answer_to(server, request_)
    assert b" 200 " not in answer
    assert b"Traceback" not in answer
    assert is_alive(server)


def test_the_response_to_an_unknown_path_shows_paths_and_no_version_of_python(server: HttpServer) -> None:
    answer = answer_to(server, b"GET /../../etc/passwd HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"Python" not in answer
    assert b"BaseHTTP" not in answer
    assert b"root:" not in answer
