"""The extender over real HTTP: what kube-scheduler sends, what nobody should, and what comes back."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.extenderparts import Bindings, Call, Listener, Table, binding, other_pod, pod
from helpers.poll import eventually
from localcluster.certificates import of_loopback
from tfjob_controller.gangscheduler.binding.binder import Binder
from tfjob_controller.gangscheduler.bindrequests import STOPPING
from tfjob_controller.gangscheduler.extender.server import INTERNAL_ERROR, MAX_BODY_BYTES, TlsFiles, new_server
from tfjob_controller.gangscheduler.extender.verbs import ExtenderVerbs
from tfjob_controller.gangscheduler.permit.permit import Permit
from tfjob_controller.httpserver.server import ListenError
from tfjob_controller.util.clock import RealClock

NAMES = [f"n{number}" for number in range(10)]


@dataclass(frozen=True)
class Loopback:
    host: str = "127.0.0.1"
    port: int = 0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Extender:
    """All of it but who decides and the API server."""

    def __init__(self, **options: Any) -> None:
        self.table, self.bindings, self.listener = Table(), Bindings(), Listener()
        clock = RealClock()
        self.binder = Binder(self.bindings, clock, threads=4)
        self.permit = Permit(
            self.binder.submit,
            self.listener,
            clock,
            http_timeout_seconds=300.0,
            bind_timeout_seconds=60.0,
            admitted_timeout_seconds=600.0,
        )
        self.service = ExtenderVerbs(self.table, self.permit, self.listener)
        self.server = new_server(Loopback(), self.service, clock, **options)
        self.parts = [self.binder, self.permit, self.server]

    def __enter__(self) -> Extender:
        for part in self.parts:
            part.start()
        return self

    def __exit__(self, *exc: object) -> None:
        for part in reversed(self.parts):
            assert part.stop(5.0)

    def set_placement(self, nodes: dict[str, str], gang: str = "gang") -> None:
        self.permit.set_placement(f"ns/{gang}", 1, nodes)
        self.table.place(f"ns/{gang}", nodes)

    def filter(self, of: dict[str, Any], names: list[str] | None = None) -> dict[str, Any]:
        sent = {"Pod": of, "Nodes": None, "NodeNames": NAMES if names is None else names}
        status, body = Call(self.server.port, "/filter", json.dumps(sent).encode()).answer()
        assert status == 200, body
        answer: dict[str, Any] = json.loads(body)
        return answer

    def bind(self, of: dict[str, Any], node: str) -> Call:
        return self.post("/bind", binding(of, node))

    def post(self, path: str, sent: Any) -> Call:
        return Call(self.server.port, path, sent if isinstance(sent, bytes) else json.dumps(sent).encode())


def idle_service() -> ExtenderVerbs:
    clock, listener = RealClock(), Listener()
    binder = Binder(Bindings(), clock)
    permit = Permit(
        binder.submit, listener, clock, http_timeout_seconds=1.0, bind_timeout_seconds=1.0, admitted_timeout_seconds=9.0
    )
    return ExtenderVerbs(Table(), permit, listener)


@pytest.fixture
def extender() -> Iterator[Extender]:
    with Extender() as started:
        yield started


def test_a_gang_is_filtered_to_its_nodes_and_bound_when_its_last_member_has_come(extender: Extender) -> None:
    extender.set_placement({"worker-0": "n0", "worker-1": "n1"})
    assert extender.filter(pod("worker-0"))["NodeNames"] == ["n0"]
    assert extender.filter(pod("worker-1"))["NodeNames"] == ["n1"]
    first = extender.bind(pod("worker-0"), "n0")
    eventually(lambda: extender.permit.statistics().calls == 1)
    assert extender.bindings.bound == {}
    assert extender.bind(pod("worker-1"), "n1").error() == ""
    assert first.error() == ""
    assert extender.bindings.bound == {"gang-worker-0": "n0", "gang-worker-1": "n1"}
    # The calls are answered first.
    eventually(lambda: extender.listener.bound == ["ns/gang"])


def test_a_thousand_parked_calls_hold_up_nobody_else(extender: Extender) -> None:
    members = [f"worker-{number}" for number in range(1000)]
    extender.set_placement(dict.fromkeys([*members, "last-0"], "n0"))
    calls = []
    for member in members:
        extender.filter(pod(member))
        calls.append(extender.bind(pod(member), "n0"))
    eventually(lambda: extender.permit.statistics().calls == 1000)
    extender.filter(other_pod("other"))
    assert extender.bind(other_pod("other"), "n3").error() == "", "a pod of no gang does not wait for one"
    extender.filter(pod("last-0"))
    assert extender.bind(pod("last-0"), "n0").error() == ""
    assert {call.error() for call in calls} == {""}
    assert len(extender.bindings.bound) == 1002


def test_answers_do_not_wait_for_the_clients_acknowledgement(extender: Extender) -> None:
    """With Nagle's algorithm each would take 40 ms: see httpserver.server."""
    connection = http.client.HTTPConnection("127.0.0.1", extender.server.port, timeout=10.0)
    body = json.dumps({"Pod": other_pod("p"), "NodeNames": NAMES}).encode()
    seconds: list[float] = []
    for _ in range(50):
        begin = time.monotonic()
        connection.request("POST", "/filter", body)
        connection.getresponse().read()
        seconds.append(time.monotonic() - begin)
    connection.close()
    assert min(seconds) < 0.03


@pytest.mark.parametrize("path", ["/filter", "/bind"])
def test_a_bad_body_is_answered_with_one_line(extender: Extender, path: str) -> None:
    error = extender.post(path, b"no json").error()
    assert error
    assert "\n" not in error
    assert extender.filter(other_pod("next"))["NodeNames"] == NAMES


def test_a_long_body_is_never_kept(extender: Extender) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", extender.server.port, timeout=10.0)
    piece = b" " * 65_536
    tracemalloc.start()
    try:
        connection.request("POST", "/filter", (piece for _ in range(480)), {"Content-Length": str(480 * len(piece))})
        assert b"longer than" in connection.getresponse().read()
        assert tracemalloc.get_traced_memory()[1] < 2.5 * MAX_BODY_BYTES
    finally:
        tracemalloc.stop()
        connection.close()


@pytest.mark.parametrize("path", ["/filter", "/bind"])
def test_before_the_state_is_read_there_is_only_503(extender: Extender, path: str) -> None:
    extender.table.synced = False
    assert extender.post(path, b"{}").answer()[0] == 503
    extender.table.synced = True
    assert extender.post(path, b"{}").answer()[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/healthz", 200), ("GET", "/filter", 405), ("POST", "/prioritize", 404), ("GET", "/", 404)],
)
def test_other_requests_have_the_usual_answers(extender: Extender, method: str, path: str, status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", extender.server.port, timeout=10.0)
    connection.request(method, path)
    assert connection.getresponse().status == status
    connection.close()


def test_the_verbs_stand_under_the_prefix() -> None:
    with Extender(prefix="/gangs/") as extender:
        assert extender.post("/gangs/bind", b"{}").answer()[0] == 200
        assert extender.post("/bind", b"{}").answer()[0] == 404


def test_a_fault_of_ours_is_an_error_and_not_the_end(extender: Extender) -> None:
    extender.table.fault = ValueError("secret")
    assert extender.filter(other_pod("p"))["Error"] == INTERNAL_ERROR
    extender.table.fault = None
    assert extender.filter(other_pod("p"))["NodeNames"] == NAMES


def test_a_client_that_leaves_leaves_its_member_there(extender: Extender) -> None:
    extender.set_placement({"worker-0": "n0", "worker-1": "n1"})
    extender.filter(pod("worker-0"))
    extender.bind(pod("worker-0"), "n0").close()
    eventually(lambda: extender.permit.statistics().calls == 1)
    extender.filter(pod("worker-1"))
    assert extender.bind(pod("worker-1"), "n1").error() == ""
    eventually(lambda: len(extender.bindings.bound) == 2)


def test_calls_beyond_what_the_system_can_hold_are_turned_away() -> None:
    with Extender(connection_limit=5) as extender:
        extender.set_placement({f"worker-{number}": "n0" for number in range(9)})
        for number in range(5):
            extender.filter(pod(f"worker-{number}"))
        calls = [extender.bind(pod(f"worker-{number}"), "n0") for number in range(5)]
        eventually(lambda: extender.permit.statistics().calls == 5)
        with pytest.raises((OSError, http.client.HTTPException)):
            extender.bind(pod("worker-5"), "n0").answer()
        for call in calls:
            call.close()


def test_stop_answers_parked_calls_and_leaves_nothing() -> None:
    extender = Extender()
    with extender:
        extender.set_placement({"worker-0": "n0", "worker-1": "n1"})
        extender.filter(pod("worker-0"))
        parked = extender.bind(pod("worker-0"), "n0")
        eventually(lambda: extender.permit.statistics().calls == 1)
        port = extender.server.port
        assert extender.server.stop(10.0)
        assert parked.error() == STOPPING
    names = {thread.name for thread in threading.enumerate()}
    assert not {name for name in names if name.startswith(("extender", "binder", "permit"))}
    with socket.create_server(("127.0.0.1", port)):
        """The address is free."""


def test_a_server_that_was_never_started_can_be_stopped() -> None:
    assert Extender().server.stop(1.0)


def test_an_address_in_use_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Loopback(port=taken.getsockname()[1])
        with pytest.raises(ListenError, match=r"^cannot listen on 127.0.0.1:\d+: Address already in use$"):
            new_server(address, idle_service(), RealClock())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.com"])
def test_beyond_loopback_it_will_not_listen_without_tls(host: str) -> None:
    with pytest.raises(ListenError, match="without TLS, because any client that reaches it could bind pods"):
        new_server(Loopback(host), idle_service(), RealClock())


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two certificates that are their own authorities, `server` and `client`, with their keys."""
    folder = tmp_path_factory.mktemp("pki")
    for name in ("server", "client"):
        of_loopback(folder, name)
    return folder


@pytest.fixture
def over_tls(pki: Path) -> Iterator[Extender]:
    files = TlsFiles(str(pki / "server.pem"), str(pki / "server.key"), str(pki / "client.pem"), "client")
    with Extender(tls=files) as started:
        yield started


def trusting(pki: Path, client: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(pki / "server.pem"))
    if client:
        context.load_cert_chain(pki / f"{client}.pem", pki / f"{client}.key")
    return context


def test_a_client_with_a_certificate_is_served(over_tls: Extender, pki: Path) -> None:
    body = json.dumps({"Pod": other_pod("p"), "NodeNames": NAMES}).encode()
    assert Call(over_tls.server.port, "/filter", body, trusting(pki, "client")).answer()[0] == 200


@pytest.mark.parametrize("client", ["", "server"], ids=["none", "of another authority"])
def test_a_client_without_a_good_certificate_gets_no_answer(over_tls: Extender, pki: Path, client: str) -> None:
    with pytest.raises((OSError, http.client.HTTPException)):
        Call(over_tls.server.port, "/bind", b"{}", trusting(pki, client)).answer()
    body = json.dumps({"Pod": other_pod("p"), "NodeNames": NAMES}).encode()
    assert Call(over_tls.server.port, "/filter", body, trusting(pki, "client")).answer()[0] == 200


def test_a_client_certificate_with_another_name_is_refused_with_a_reason(pki: Path) -> None:
    files = TlsFiles(str(pki / "server.pem"), str(pki / "server.key"), str(pki / "client.pem"), "system:kube-scheduler")
    with Extender(tls=files) as extender:
        for path in ("/filter", "/bind"):
            status, words = Call(extender.server.port, path, b"{}", trusting(pki, "client")).answer()
            assert (status, words) == (403, b"the client certificate does not have the name system:kube-scheduler\n")


def test_files_that_are_no_certificates_are_said_in_one_line(pki: Path) -> None:
    files = TlsFiles(str(pki / "none.pem"), str(pki / "server.key"), str(pki / "client.pem"), "client")
    with pytest.raises(ListenError, match="cannot use"):
        new_server(Loopback(), idle_service(), RealClock(), tls=files)
