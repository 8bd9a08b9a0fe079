"""TLS, client certificates and proxies, over real sockets with real certificates."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from helpers.barekubeconfig import write_kubeconfig
from helpers.certificates import server_context
from helpers.connectproxy import ConnectProxy
from helpers.httpserver import Answer, HttpServer, Request
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.http.transport import Transport

PATH = "/api/v1/pods"


@pytest.fixture
def server(certificate: tuple[Path, Path]) -> Iterator[HttpServer]:
    """It talks only to clients with that certificate."""
    context = server_context(*certificate)
    context.load_verify_locations(certificate[0])
    context.verify_mode = ssl.CERT_REQUIRED
    with HttpServer(ok, context) as started:
        yield started


@pytest.fixture
def tunnel() -> Iterator[ConnectProxy]:
    proxy = ConnectProxy()
    yield proxy
    proxy.close()


def ok(request: Request) -> Answer:
    return Answer(200, b"{}") if not request.query else Answer(chunks=[b"one\n", b"two\n"])


def transport(folder: Path, cluster: dict[str, Any], certificate: tuple[Path, Path] | None = None) -> Transport:
    user = {"client-certificate": str(certificate[0]), "client-key": str(certificate[1])} if certificate else {}
    return Transport(load_config(write_kubeconfig(folder / "kubeconfig", cluster, user)), qps=0)


def test_a_client_certificate_is_shown(server: HttpServer, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    client = transport(tmp_path, {"server": server.url, "certificate-authority": str(certificate[0])}, certificate)
    assert client.request("GET", PATH) == b"{}"
    with client.stream(PATH, query={"watch": "1"}, read_timeout_seconds=5.0) as stream:
        assert list(stream) == [b"one", b"two"]
    client.close()


@pytest.mark.parametrize(
    ("starts_in", "reason"), [(-2, "certificate has expired"), (1, "certificate is not yet valid")], ids=["old", "new"]
)
def test_a_certificate_of_another_time_may_mean_a_wrong_clock(starts_in: int, reason: str, tmp_path: Path) -> None:
    start = datetime.now(UTC) + timedelta(days=starts_in)
    with (
        HttpServer(ok, server_context(*_valid_for_a_day(tmp_path, start))) as server,
        contextlib.closing(
            transport(tmp_path, {"server": server.url, "certificate-authority": str(tmp_path / "certificate")})
        ) as client,
        pytest.raises(ApiError) as caught,
    ):
        client.request("GET", PATH, retry=False)
    assert f"{reason} " in caught.value.message
    assert caught.value.message.endswith("check the clock of this machine")


def _valid_for_a_day(folder: Path, start: datetime) -> tuple[Path, Path]:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(start + timedelta(days=1))
    signed = builder.add_extension(address, False).sign(key, SHA256())
    (folder / "certificate").write_bytes(signed.public_bytes(Encoding.PEM))
    (folder / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return folder / "certificate", folder / "key"


def test_without_one_the_server_closes_the_door(
    server: HttpServer, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    client = transport(tmp_path, {"server": server.url, "certificate-authority": str(certificate[0])})
    with pytest.raises(ApiError) as caught:
        client.request("GET", PATH, retry=False)
    assert caught.value.is_no_response
    client.close()


def test_tls_goes_through_a_proxys_tunnel(
    server: HttpServer, tunnel: ConnectProxy, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    proxy = tunnel.url.replace("//", "//me:p%40ss@")
    cluster = {"server": server.url + "/prefix", "certificate-authority": str(certificate[0]), "proxy-url": proxy}
    client = transport(tmp_path, cluster, certificate)
    assert client.request("POST", PATH, body=b"{}") == b"{}"
    assert tunnel.asked == [server.url.removeprefix("https://")]
    expected = base64.b64encode(b"me:p@ss").decode()
    assert [line.lower() for line in tunnel.authorizations] == [f"proxy-authorization: basic {expected}".lower()]
    assert "authorization" not in server.requests[0].headers
    assert server.requests[0].path == "/prefix" + PATH
    client.close()


def test_plain_http_is_forwarded_by_a_proxy(tmp_path: Path) -> None:
    lines: list[str] = []

    def respond(request: Request) -> Answer:
        lines.append(f"{request.method} {request.target} {request.headers['host']}")
        return Answer()

    with HttpServer(respond) as proxy:
        client = transport(tmp_path, {"server": "http://cluster.test:8080/prefix", "proxy-url": proxy.url})
        assert client.request("GET", PATH, query={"a": "1"}) == b"{}"
        client.close()
    assert lines == [f"GET http://cluster.test:8080/prefix{PATH}?a=1 cluster.test:8080"]


def test_a_proxy_that_is_not_there_was_sent_nothing(server: HttpServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    client = transport(tmp_path, {"server": server.url, "proxy-url": url})
    with pytest.raises(ApiError) as caught:
        client.request("POST", PATH, body=b"{}")
    assert (caught.value.reason, caught.value.outcome_unknown) == ("ProxyNotConnected", False)
    assert f"cannot connect through the proxy {url.removeprefix('http://')}: " in caught.value.message
    client.close()
