"""Attacks on the dashboard's server by clients without credentials, and people who use it meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from helpers.certificates import client_hello, trusting_context
from helpers.dashboardpeople import Site, dashboard_site
from helpers.fakeclock import FakeClock
from helpers.poll import eventually
from localcluster import ports
from tfjob_controller.dashboard.front import (
    HEAD_BYTES,
    KNOWN_EACH,
    NEW_CONNECTIONS,
    STRANGERS,
    STRANGERS_EACH,
    address_of,
)
from tfjob_controller.dashboard.guard import HOST_PREFIX, MAX_BODY_BYTES
from tfjob_controller.dashboard.loginrate import OF_ADDRESS
from tfjob_controller.dashboard.server import Pulse

MEGABYTE = 1_000_000
CHUNKED_LOGIN = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """For tests that leave nothing behind but logins."""
    with dashboard_site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with dashboard_site(tmp_path) as running:
        yield running


def flags_of(certificate: tuple[Path, Path]) -> tuple[str, str]:
    return f"--dashboard-tls-cert-file={certificate[0]}", f"--dashboard-tls-key-file={certificate[1]}"


@pytest.fixture
def tls_site(tmp_path: Path, certificate: tuple[Path, Path]) -> Iterator[Site]:
    with dashboard_site(tmp_path, *flags_of(certificate), has_tls=True) as running:
        yield running


@pytest.fixture
def proxied_site(tmp_path: Path, certificate: tuple[Path, Path]) -> Iterator[Site]:
    """With TLS from its proxy to it, and therefore no rate of new connections."""
    flags = (*flags_of(certificate), "--behind-tls-proxy")
    with dashboard_site(tmp_path, *flags, has_tls=True) as running:
        yield running


def connect(site: Site, address: str = "127.0.0.1") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", site.port), 60, source_address=(address, 0))
    client.settimeout(60)
    return client


def is_closed(client: socket.socket) -> bool:
    """Whether the server has closed the connection by now. Data that has arrived is dropped."""
    client.settimeout(0.001)
    try:
        while client.recv(65_536):
            pass
    except (TimeoutError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    return True


def assert_cut_off_early(site: Site, beginning: bytes) -> None:
    """Sends a request that never ends: the connection is closed before it takes memory."""
    before, sent = site.resident_bytes(), 0
    with connect(site) as client, contextlib.suppress(OSError):
        client.sendall(beginning)
        while sent < 200 * MEGABYTE:
            client.sendall(b"x" * 65_536)
            sent += 65_536
    # What the socket buffers of both ends hold was sent as well.
    assert sent < 20 * MEGABYTE
    assert site.resident_bytes() - before < 5 * MEGABYTE


@pytest.mark.parametrize(
    "beginning",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: ", id="a field's value"),
        pytest.param(b"GET / HTTP/1.1\r\n", id="a field's name"),
    ],
)
def test_a_head_without_an_end_is_cut_off(shared_site: Site, beginning: bytes) -> None:
    assert_cut_off_early(shared_site, beginning)


@pytest.mark.parametrize(
    "beginning",
    [
        pytest.param(b"0\r\nX: ", id="a trailer's value"),
        pytest.param(b"5;a=", id="a chunk's extension"),
    ],
)
def test_a_trailer_or_an_extension_of_a_chunk_without_an_end_is_cut_off(shared_site: Site, beginning: bytes) -> None:
    assert_cut_off_early(shared_site, CHUNKED_LOGIN % shared_site.port + beginning)
    assert shared_site.person("other.token").is_logged_in()


def test_a_form_of_the_largest_size_is_read_in_small_chunks(shared_site: Site) -> None:
    person = shared_site.person("me.token")
    body = urlencode({"csrf_token": person.csrf(), "do": "read", "yaml": "x" * (MAX_BODY_BYTES - 200)}).encode()
    pieces = [body[index : index + 1024] for index in range(0, len(body), 1024)]
    head = "POST /new HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nCookie: {}\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    with connect(shared_site) as client:
        client.sendall(head.format(shared_site.port, person.cookie).encode() + chunks + b"0\r\nX-Sum: 1\r\n\r\n")
        assert client.recv(65_536).startswith(b"HTTP/1.1 200")


def test_a_head_with_many_fields_is_refused(shared_site: Site) -> None:
    with connect(shared_site) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 431")


def test_a_head_of_the_size_of_a_large_token_is_accepted(shared_site: Site) -> None:
    assert HEAD_BYTES > 2 * 16_384 - 1
    status, _, _ = shared_site.person().send("GET", "/login", headers={"X-Token": "t" * 16_384})
    assert status == 200


def test_requests_that_do_not_wait_for_their_answers_end_their_connection(shared_site: Site) -> None:
    before = shared_site.resident_bytes()
    with connect(shared_site) as client, contextlib.suppress(OSError):
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 100_000)
        answered = b""
        while part := client.recv(65_536):
            answered += part
        assert answered.count(b"HTTP/1.1") <= 1
    assert shared_site.resident_bytes() - before < 5 * MEGABYTE
    assert shared_site.person("other.token").is_logged_in()


def test_requests_one_after_the_other_share_a_connection(shared_site: Site) -> None:
    host = b"127.0.0.1:%d" % shared_site.port
    with connect(shared_site) as client:
        for _ in range(20):
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: %b\r\n\r\n" % host)
            answer = b""
            while not answer.endswith(b"ok\n"):
                part = client.recv(65_536)
                assert part, answer
                answer += part
            assert answer.startswith(b"HTTP/1.1 200")


def is_answered(site: Site, hello: bytes, address: str) -> bool:
    """Whether a new connection gets an answer to this beginning of a handshake."""
    with connect(site, address) as client:
        try:
            client.sendall(hello)
            return client.recv(1) != b""
        except OSError:
            return False


def test_an_address_begins_no_more_handshakes_than_its_rate(tls_site: Site) -> None:
    hello, begin = client_hello(), time.monotonic()
    answers = [is_answered(tls_site, hello, "127.0.0.3") for _ in range(600)]
    most = NEW_CONNECTIONS.burst + NEW_CONNECTIONS.per_second * (time.monotonic() - begin) + 1
    assert all(answers[: NEW_CONNECTIONS.burst])
    assert sum(answers) <= most
    assert tls_site.person("other.token", address="127.0.0.2").is_logged_in()


@pytest.mark.parametrize("flag", ["--behind-tls-proxy", "--token-header=X-Token"])
def test_a_proxy_opens_as_many_connections_as_it_needs(tmp_path: Path, flag: str) -> None:
    with dashboard_site(tmp_path, flag) as site:
        answers = {site.person().get("/healthz")[0] for _ in range(3 * NEW_CONNECTIONS.burst)}
    assert answers == {200}


def test_silent_connections_displace_their_own_address_and_nobody_who_has_logged_in(proxied_site: Site) -> None:
    site = proxied_site
    other = site.person("other.token", address="127.0.0.2")
    watching = other.stream("/events/jobs?namespace=ns")
    before = site.resident_bytes()
    with contextlib.ExitStack() as open_:
        for _ in range(3):
            open_.enter_context(connect(site, "127.0.0.3"))
        clients = [open_.enter_context(connect(site)) for _ in range(1500)]
        eventually(lambda: sum(not is_closed(each) for each in clients) <= STRANGERS_EACH)
        assert site.person("another.token", address="127.0.0.2").is_logged_in()
        assert not watching.has_ended()
        assert site.resident_bytes() - before < 40 * MEGABYTE


def test_probes_have_a_port_which_strangers_at_that_of_browsers_do_not_fill(tmp_path: Path) -> None:
    with ports.reserve(1, "127.0.0.1") as (probes,), contextlib.ExitStack() as open_:
        site = open_.enter_context(dashboard_site(tmp_path, f"--health-probe-bind-address=127.0.0.1:{probes}"))
        for index in range(STRANGERS + 1):
            open_.enter_context(connect(site, f"127.0.1.{1 + index % 200}"))
        for path in ("healthz", "readyz"):
            with urllib.request.urlopen(f"http://127.0.0.1:{probes}/{path}", timeout=60) as answer:
                assert answer.read() == b"ok\n"


def test_the_probe_fails_once_the_event_loop_has_not_run_for_a_minute() -> None:
    clock = FakeClock()
    pulse = Pulse(clock)
    clock.advance(60.0)
    assert not pulse.problems()
    clock.advance(1.0)
    assert pulse.problems() == ["the event loop has not run for 61 s"]

    async def run() -> None:
        beating = asyncio.create_task(pulse.keep())
        await asyncio.sleep(0)
        beating.cancel()

    asyncio.run(run())
    assert not pulse.problems()


def test_connections_from_many_addresses_displace_nobody_who_has_logged_in(site: Site) -> None:
    other = site.person("other.token")
    watching = other.stream("/events/jobs?namespace=ns")
    addresses = (f"127.0.1.{1 + index % 200}" for index in range(STRANGERS + 200))
    with contextlib.ExitStack() as open_:
        clients = [open_.enter_context(connect(site, address)) for address in addresses]
        eventually(lambda: sum(not is_closed(each) for each in clients) <= STRANGERS)
        assert other.is_logged_in()
        assert not watching.has_ended()


def test_a_persons_connections_displace_that_persons_oldest(site: Site) -> None:
    other, greedy = site.person("other.token"), site.person("greedy.token")
    watching = other.stream("/events/jobs?namespace=ns")
    # Each holds its connection with the body of a form that does not end.
    head = "POST /new HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nCookie: {}\r\nContent-Length: 1000000\r\n\r\nx"
    clients: list[socket.socket] = []
    with contextlib.ExitStack() as open_:
        for _ in range(KNOWN_EACH + 20):
            clients.append(open_.enter_context(connect(site)))
            clients[-1].sendall(head.format(site.port, greedy.cookie).encode())
        eventually(lambda: sum(not is_closed(each) for each in clients) <= KNOWN_EACH)
        assert other.is_logged_in()
        assert not watching.has_ended()


def test_connections_that_stay_silent_are_closed(tls_site: Site) -> None:
    silent = connect(tls_site)
    spoken = _wrapped(tls_site)
    with silent, spoken:
        begin = time.monotonic()
        assert silent.recv(10) == b""
        assert spoken.recv(10) == b""
        assert time.monotonic() - begin < 50, "not by the end of the test's own patience"


def _wrapped(site: Site) -> ssl.SSLSocket:
    return trusting_context().wrap_socket(connect(site), server_hostname="localhost")


def test_refused_logins_of_an_address_do_not_reach_the_api_server(site: Site) -> None:
    guesser = site.person(address="127.0.0.2")
    answers = [guesser.log_in(f"bad-{index}.token") for index in range(100)]
    assert answers == [401] * OF_ADDRESS + [429] * (100 - OF_ADDRESS)
    assert len(site.cluster.reviews) == OF_ADDRESS
    assert site.person(address="127.0.0.3").log_in("other.token") == 303


def test_a_cookie_that_is_sent_over_tls_belongs_to_this_host_alone(tls_site: Site) -> None:
    with _wrapped(tls_site) as client:
        body = urlencode({"token": "me.token"}).encode()
        head = "POST /login HTTP/1.1\r\nHost: localhost:%d\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        client.sendall((head % (tls_site.port, len(body))).encode() + body)
        answer = client.recv(65_536).decode()
    (cookie,) = [line for line in answer.splitlines() if line.lower().startswith("set-cookie")]
    assert f"{HOST_PREFIX}tfjob-dashboard=" in cookie
    assert ("Secure" in cookie, "Path=/;" in cookie, "Domain" in cookie) == (True, True, False)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:0:1::5", "2001:db8:0:1::/64"),
        ("2001:db8:0:1:ffff::9", "2001:db8:0:1::/64"),
        ("testclient", "testclient"),
    ],
)
def test_an_ipv6_network_of_one_client_is_one_address(host: str, address: str) -> None:
    assert address_of(host) == address
