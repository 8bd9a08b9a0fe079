"""The rules of kube/http/responsestream.py, over real sockets, with TLS and without."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.connectproxy import ConnectProxy
from helpers.fakeclock import FakeClock
from helpers.logserver import LogServer
from helpers.poll import eventually
from localcluster.certificates import of_loopback
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.http.responsestream import Connector, ResponseStream

PATH, QUERY = "/api/v1/namespaces/ns/pods/p/log", {"follow": "true", "sinceTime": "2026-01-01T00:00:00Z"}
MUCH = 1 << 20


with_and_without_tls = pytest.mark.parametrize("server", ["plain", "TLS"], indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest, certificate: tuple[Path, Path]) -> Iterator[LogServer]:
    with LogServer(certificate if getattr(request, "param", "TLS") == "TLS" else None) as started:
        yield started


@pytest.fixture
def connector(server: LogServer, tmp_path: Path) -> Connector:
    return Connector(server.config(tmp_path), FakeClock())


def read(stream: ResponseStream, least: int, most_bytes: int = MUCH) -> bytes:
    """At least so many bytes, or all that there are."""
    data = b""
    while len(data) < least and not stream.has_ended:
        if not stream.has_more:
            # Not `select`, which takes no descriptor from 1024 on.
            waiting = select.poll()
            waiting.register(stream, select.POLLIN)
            waiting.poll(60_000)
        data += stream.read(most_bytes)
    return data


def test_a_streaming_request_has_the_headers_of_any_other(server: LogServer, connector: Connector) -> None:
    connector.open(PATH, QUERY)
    asked = server.asked()
    assert (asked.path, asked.query) == (PATH, QUERY)
    assert asked.headers["authorization"] == "Bearer secret-token"
    assert asked.headers["user-agent"].startswith("tfjob-controller/")
    assert asked.headers["accept-encoding"] == "identity"


@with_and_without_tls
def test_what_has_come_is_read_and_nobody_waits_for_more(server: LogServer, connector: Connector) -> None:
    stream = connector.open(PATH, QUERY)
    asked = server.asked()
    assert stream.read(MUCH) == b""
    assert not stream.has_begun, "there is not even a head"
    asked.begin()
    eventually(lambda: (stream.read(MUCH), stream.has_begun)[1])
    assert stream.read(MUCH) == b""
    asked.say(b"one\n", b"two\n")
    assert read(stream, 8) == b"one\ntwo\n"
    assert not stream.has_ended
    asked.end()
    assert read(stream, 1) == b""
    assert stream.has_ended


@with_and_without_tls
def test_no_more_is_read_at_once_than_requested(server: LogServer, connector: Connector) -> None:
    stream = connector.open(PATH, QUERY)
    asked = server.asked().begin()
    asked.say(b"x" * 500_000)
    eventually(lambda: len(stream.read(1)) > 0)
    assert stream.has_more
    data = read(stream, 300_000, most_bytes=100_000)
    assert len(data) < 300_000 + 100_000 + len(connector.buffer)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"5\r\nhel", id="within a chunk"),
        pytest.param(b"5\r\nhello\r\n", id="between chunks"),
        pytest.param(b"5\r\nhello\r\nnonsense\r\n", id="with something that is no chunk"),
    ],
)
@with_and_without_tls
def test_what_came_before_it_broke_off_is_read_and_then_it_is_said(
    server: LogServer, connector: Connector, sent: bytes
) -> None:
    stream = connector.open(PATH, QUERY)
    asked = server.asked().begin()
    asked.send(sent)
    asked.break_off()
    assert b"hello".startswith(read(stream, 3))
    with pytest.raises(ApiError) as caught:
        read(stream, 10)
    assert caught.value.is_no_response
    with pytest.raises(ApiError):
        stream.read(MUCH)


def test_a_refusal_is_an_error_with_the_servers_message(server: LogServer, connector: Connector) -> None:
    stream = connector.open(PATH, QUERY)
    server.asked().refuse(
        400,
        b'{"kind":"Status","code":400,"reason":"BadRequest","message":"container is waiting to start"}',
        b"Retry-After: 7\r\n",
    )
    with pytest.raises(ApiError, match="waiting to start") as caught:
        read(stream, 1)
    assert (caught.value.status, caught.value.retry_after_seconds) == (400, 7)


def test_a_refusal_without_an_end_is_not_waited_for(server: LogServer, connector: Connector) -> None:
    stream = connector.open(PATH, QUERY)
    server.asked().begin(500).say(b"x" * 100_000)
    with pytest.raises(ApiError) as caught:
        read(stream, 1)
    assert caught.value.status == 500


def test_a_server_that_is_not_there_is_said_at_once(server: LogServer, tmp_path: Path) -> None:
    connector = Connector(server.config(tmp_path, server="https://127.0.0.1:1"), FakeClock())
    with pytest.raises(ApiError, match="cannot connect") as caught:
        connector.open(PATH, QUERY)
    assert caught.value.is_no_response


@with_and_without_tls
def test_a_closed_stream_closes_its_connection(server: LogServer, connector: Connector) -> None:
    stream = connector.open(PATH, QUERY)
    asked = server.asked().begin()
    stream.close()
    stream.close()
    assert asked.is_hung_up()


@pytest.fixture(scope="session")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody else's certificate."""
    return of_loopback(tmp_path_factory.mktemp("others"), "you")[0]


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        pytest.param("", "self-signed certificate", id="an authority that is not ours"),
        pytest.param("example.com", "certificate is not valid for 'example.com'", id="another name"),
    ],
)
def test_a_server_that_is_another_is_refused(
    certificate: tuple[Path, Path], others: Path, tmp_path: Path, named: str, complaint: str
) -> None:
    cluster = {"tls-server-name": named} if named else {"certificate-authority": str(others)}
    with LogServer(certificate) as server:
        connector = Connector(server.config(tmp_path, **cluster), FakeClock())
        with pytest.raises(ApiError, match=complaint) as caught:
            connector.open(PATH, QUERY)
    assert caught.value.reason == "NotConnected"


def test_insecure_skip_tls_verify_accepts_any_server_name(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    with LogServer(certificate) as server:
        config = server.config(tmp_path, **{"insecure-skip-tls-verify": True, "tls-server-name": "example.com"})
        stream = Connector(config, FakeClock()).open(PATH, QUERY)
        server.asked().begin().say(b"one\n")
        assert read(stream, 4) == b"one\n"


def test_a_certificate_is_shown_and_a_proxy_led_through(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    tunnel = ConnectProxy()
    with LogServer(certificate, is_mutual=True) as server:
        stream = Connector(server.config(tmp_path, **{"proxy-url": tunnel.url}), FakeClock()).open(PATH, QUERY)
        server.asked().begin().say(b"one\n")
        assert read(stream, 4) == b"one\n"
        assert tunnel.asked == [server.url.removeprefix("https://")]
    tunnel.close()


def test_each_answer_is_counted_once_by_how_it_began(server: LogServer, tmp_path: Path) -> None:
    codes: list[str] = []

    class Observer:
        def request_finished(self, method: str, host: str, code: str, seconds: float) -> None:
            codes.append(f"{method} {code}")

        def request_retried(self, method: str, host: str, code: str) -> None: ...
        def rate_limited(self, method: str, host: str, seconds: float) -> None: ...

    connector = Connector(server.config(tmp_path), FakeClock(), observer=Observer())
    followed = connector.open(PATH, QUERY)
    server.asked().begin().say(b"one\n", b"two\n")
    broken = connector.open(PATH, QUERY)
    server.asked().break_off()
    assert read(followed, 8) == b"one\ntwo\n"
    with pytest.raises(ApiError):
        read(broken, 1)
    assert codes == ["GET 200", "GET <error>"]
