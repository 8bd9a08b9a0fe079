"""Turns between clients, over real sockets: one of them sends as many requests at once as it can."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import ssl
import struct
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.certificates import server_context
from tfjob_controller.flags import BindAddress
from tfjob_controller.httpserver.app import TEXT, Limits, Reply, Request, RequestRate
from tfjob_controller.httpserver.requestreader import RequestReader
from tfjob_controller.httpserver.server import HttpServer
from tfjob_controller.httpserver.turns import MAX_ADDRESSES, AddressRates, Turns
from tfjob_controller.util.clock import RealClock

HERE, THERE = "127.0.0.1", "127.0.0.2"
TIMEOUT_SECONDS = 60.0
FLOOD = 2000
LIMITS = Limits(connections=100, body_bytes=1_000_000, replaces_busy=False, rate=None)
SHORTEST = b"GET / HTTP/1.1\r\n\r\n"


@dataclass
class App:
    """Answers each request with its target. `on_flood` is called with the first request of a flood."""

    targets: list[bytes] = field(default_factory=list)
    floods: int = 0
    on_flood: Callable[[], object] = lambda: None

    def __call__(self, request: Request, reply: Reply) -> None:
        if request.target.startswith(b"/flood"):
            if not self.floods:
                self.on_flood()
            self.floods += 1
        self.targets.append(request.target)
        reply(200, request.target, TEXT)


@dataclass(frozen=True)
class Service:
    app: App
    port: int
    trust: ssl.SSLContext | None

    def connect(self, address: str = HERE) -> socket.socket:
        client = socket.create_connection((HERE, self.port), TIMEOUT_SECONDS, (address, 0))
        return client if self.trust is None else self.trust.wrap_socket(client, server_hostname="127.0.0.1")


@contextlib.contextmanager
def serving(rate: RequestRate | None = None, certificate: tuple[Path, Path] | None = None) -> Iterator[Service]:
    trust, settings = None, None
    if certificate is not None:
        context = server_context(*certificate)
        settings = lambda: context  # noqa: E731 -- it is an argument
        trust = ssl.create_default_context(cafile=str(certificate[0]))
        trust.check_hostname = False
    limits = Limits(connections=100, body_bytes=1_000_000, replaces_busy=False, rate=rate)
    app = App()
    server = HttpServer("turns", BindAddress(HERE, 0), app, limits, RealClock(), tls=settings)
    server.start()
    try:
        yield Service(app, server.port, trust)
    finally:
        server.stop()


@pytest.fixture(params=["plain", "TLS"])
def service(request: pytest.FixtureRequest, certificate: tuple[Path, Path]) -> Iterator[Service]:
    with serving(certificate=certificate if request.param == "TLS" else None) as made:
        yield made


def get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\n\r\n".encode()


def send_and_wait(client: socket.socket, data: bytes) -> None:
    """Sends data and waits until the kernel has it for the server, which it acknowledges."""
    client.sendall(data)
    while struct.unpack("i", fcntl.ioctl(client, termios.TIOCOUTQ, bytes(4)))[0]:
        time.sleep(0.001)


def flood(client: socket.socket) -> None:
    client.sendall(b"".join(get(f"/flood/{number}") for number in range(FLOOD)))


def answers(client: socket.socket, count: int) -> list[bytes]:
    """The bodies of the next responses."""
    with client.makefile("rb") as reader:
        bodies = []
        for _ in range(count):
            head = b"".join(iter(reader.readline, b"\r\n"))
            bodies.append(reader.read(int(head.partition(b"content-length: ")[2].split()[0])))
        return bodies


@pytest.mark.parametrize("address", [THERE, HERE], ids=["another address", "the same address"])
def test_a_flood_of_requests_leaves_a_turn_to_each_other_client(service: Service, address: str) -> None:
    with service.connect(address) as flooding, service.connect() as other:
        for client in (flooding, other):
            client.sendall(get("/first"))
            assert answers(client, 1) == [b"/first"]
        # In the server's thread, so that nothing else is answered meanwhile.
        service.app.on_flood = lambda: send_and_wait(other, get("/other"))
        flood(flooding)
        assert answers(other, 1) == [b"/other"]
        assert service.app.targets.index(b"/other") <= 2 + 3


def test_all_requests_of_a_flood_are_answered_in_order(service: Service) -> None:
    with service.connect() as client:
        flood(client)
        assert answers(client, FLOOD) == [b"/flood/%d" % number for number in range(FLOOD)]


def test_many_connections_of_an_address_have_one_turn_together(service: Service) -> None:
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(service.connect(THERE)) for _ in range(20)]
        other = stack.enter_context(service.connect())
        for client in (*many, other):
            client.sendall(get("/first"))
            answers(client, 1)
        begun = len(service.app.targets)

        def send() -> None:
            for client in many[1:]:
                client.sendall(get("/more") * 100)
            send_and_wait(other, get("/other") * 20)

        service.app.on_flood = send
        flood(many[0])
        assert answers(other, 20) == [b"/other"] * 20
        last = [place for place, target in enumerate(service.app.targets) if target == b"/other"][-1]
        floods = last - begun - 19
        # Each connection may have one request answered when it is read first.
        assert floods <= len(many) + 3 * 20


def test_an_address_above_its_rate_waits_and_no_other_does() -> None:
    rate = RequestRate(per_second=1.0, burst=40)
    with serving(rate) as service, service.connect(THERE) as flooding, service.connect() as other:
        begin = time.monotonic()
        flood(flooding)
        for _ in range(15):
            other.sendall(get("/other"))
            assert answers(other, 1) == [b"/other"]
        # Half of the bucket is for connections; the first request is paid by its connection.
        assert service.app.floods <= 1 + 20 + (time.monotonic() - begin) * rate.per_second + 1
        # Which is why a probe is answered that comes from the same address.
        for _ in range(10):
            with service.connect(THERE) as probe:
                probe.sendall(get("/probe"))
                assert answers(probe, 1) == [b"/probe"]


def test_an_address_that_opens_too_many_connections_is_refused_and_no_other_is() -> None:
    with serving(RequestRate(per_second=0.001, burst=5)) as service, contextlib.ExitStack() as stack:
        many = [stack.enter_context(service.connect(THERE)) for _ in range(8)]
        answered = []
        for client in many:
            with contextlib.suppress(ConnectionError):
                client.sendall(SHORTEST)
                answered.append(client.recv(12))
        assert [answer for answer in answered if answer] == [b"HTTP/1.1 200"] * 5
        other = stack.enter_context(service.connect())
        other.sendall(SHORTEST)
        assert other.recv(12) == b"HTTP/1.1 200"


@dataclass(eq=False)
class Recorder:
    """Waits for `turns` turns, and records them."""

    name: str
    turns: Turns
    record: list[str]
    left: int = 1

    def wait(self) -> Recorder:
        self.turns.wait(self.name[0], self)
        return self

    def take_turn(self) -> None:
        self.record.append(self.name)
        self.left -= 1
        if self.left:
            self.wait()


@pytest.mark.anyio
async def test_in_a_turn_each_address_has_one_request_and_its_connections_alternate() -> None:
    turns, record = Turns(None), list[str]()
    Recorder("a1", turns, record, 2).wait()
    Recorder("a2", turns, record).wait()
    turns.leave("a", Recorder("a3", turns, record).wait())
    Recorder("b1", turns, record, 2).wait()
    for expected in (["a1", "b1"], ["a2", "b1"], ["a1"], [], []):
        await asyncio.sleep(0)
        assert record == expected
        record.clear()
    assert turns.try_request("a")
    assert turns.try_request("b")


def test_a_bucket_is_refilled_at_its_rate_and_not_beyond_its_size() -> None:
    rates = AddressRates(RequestRate(per_second=2.0, burst=4))
    assert [rates.try_request("a", 0.0) for _ in range(3)] == [True, True, False]
    assert [rates.try_connection("a", 0.0) for _ in range(3)] == [True, True, False]
    assert [rates.try_connection("a", 0.5) for _ in range(2)] == [True, False]
    assert [rates.try_request("a", 1000.0) for _ in range(3)] == [True, True, False]
    assert [rates.reserve_request("a", 1000.0) for _ in range(2)] == [0.5, 1.0]


def test_a_bucket_has_all_its_tokens_at_any_time_of_the_clock() -> None:
    for begin in range(1000):
        rates = AddressRates(RequestRate(per_second=3.0, burst=7))
        assert sum(rates.try_connection("a", begin / 7) for _ in range(10)) == 7


def test_the_table_of_addresses_is_bounded_and_keeps_those_that_are_used() -> None:
    rates = AddressRates(RequestRate(per_second=1.0, burst=4))
    for number in range(5 * MAX_ADDRESSES):
        rates.try_request("used", 0.0)
        rates.try_request(f"10.0.{number // 256}.{number % 256}", 0.0)
        rates.reserve_request("used", 0.0)
    assert len(rates) == MAX_ADDRESSES
    assert not rates.try_request("used", 0.0)


@pytest.mark.parametrize("body", [b"", b"x" * 300_000], ids=["no body", "a long body"])
def test_what_is_parsed_at_once_is_a_body_or_a_few_requests(body: bytes) -> None:
    reader = RequestReader(LIMITS, time.monotonic, HERE)
    unread = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body + SHORTEST * 4000
    reads = 0
    while unread:
        before = len(reader.complete)
        length = reader.wanted_bytes
        assert reader.feed(unread[:length]) is None
        unread = unread[length:]
        assert len(reader.complete) - before <= 1 + LIMITS.pipelined_bytes // len(SHORTEST) + 1
        reads += bool(len(reader.complete) == 0)
    assert len(reader.complete) == 4001
    assert reads <= 2, "a long body is not read in pieces"
