"""`make bench-filter`: how long kube-scheduler waits for the gang scheduler's filter.

The server runs in a process of its own, as it does beside kube-scheduler; the client sends the same request again and
again over one connection, with the names of 1,000 nodes, while the bind calls of 1,000 members are parked. Who decides
is a table, so that what is measured is the way there and back: HTTP, JSON, the verb.

- `filter_p50`, `filter_p99`: a member of a gang, that gets its node.
- `filter_waiting_p99`: one that has none yet, so that each of the nodes is refused in words.
- `filter_binding_p99`: the first again, while gangs of ten arrive and are bound by an API server that takes a
  millisecond for each.
"""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.report import ROUNDS, Reach, progress, report, size
from tfjob_controller.extender.barrier import MemberOfGang
from tfjob_controller.extender.binder import Binder
from tfjob_controller.extender.gate import Gate
from tfjob_controller.extender.server import ExtenderServer
from tfjob_controller.extender.service import NodeAnswer, Service
from tfjob_controller.extender.wire import WirePod
from tfjob_controller.kube.clock import RealClock

NODES = size(1000, tiny=10)
PARKED = size(1000, tiny=10)
CALLS = size(3000, tiny=20)
WARM_UP = size(200, tiny=2)
GANG_SIZE = 10
PARKED_GANG, WAITING_GANG = "bench/parked", "bench/waiting"
# Gangs of ten that arrive in a second while the filter is measured, as fast as kube-scheduler binds with gangs.
GANGS_PER_SECOND = 20
REACH_MS = 2.0
_TIMEOUT_SECONDS = 60.0
_BIND_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Loopback:
    host: str = "127.0.0.1"
    port: int = 0


class Table:
    """Every member of every gang has a node, but in the gang that waits."""

    is_synced = True

    def member_of(self, pod: WirePod) -> MemberOfGang | None:
        gang, _, member = pod.metadata.name.partition(".")
        return MemberOfGang(f"bench/{gang}", 1, member)

    def node_for(self, gang_key: str, attempt: int, member: str) -> NodeAnswer:
        return NodeAnswer(reason="the gang waits") if gang_key == WAITING_GANG else NodeAnswer(node_of(member))

    def allowed_nodes(self, pod: WirePod, names: Sequence[str]) -> tuple[Sequence[str], Mapping[str, str]]:
        return names, {}


class Silent:
    def gang_bound(self, gang: str, attempt: int) -> None: ...
    def gang_given_up(self, gang: str, attempt: int) -> None: ...


class ApiServer:
    """Takes its time for a Binding, without the CPU that a real one needs."""

    def request(self, method: str, path: str, **options: object) -> bytes:
        time.sleep(_BIND_SECONDS)
        return b"{}"

    def stream(self, path: str, **options: object) -> Any:
        raise NotImplementedError


class Connection:
    """One keep-alive connection, as light as a client can be."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> bytes:
        """The body of one answer."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._some()
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += self._some()
        return body

    def call(self, request: bytes) -> bytes:
        self.send(request)
        return self.receive()

    def close(self) -> None:
        self._socket.close()

    def _some(self) -> bytes:
        data = self._socket.recv(262_144)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data


def node_of(member: str) -> str:
    return f"node-{int(member.rpartition('-')[2]) % NODES:05d}.example.internal"


def post(path: str, body: Mapping[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def filter_request(gang: str, member: str) -> bytes:
    """A pod as long as those that a TFJob makes."""
    environment = [{"name": f"VARIABLE_{number}", "value": "x" * 60} for number in range(20)]
    containers = [{"name": "tensorflow", "image": "tensorflow", "env": environment}]
    name = f"{gang}.{member}"
    pod = {"metadata": {"name": name, "namespace": "bench", "uid": name}, "spec": {"containers": containers}}
    names = [node_of(f"node-{number}") for number in range(NODES)]
    return post("/filter", {"Pod": pod, "Nodes": None, "NodeNames": names})


def bind_request(gang: str, member: str) -> bytes:
    name = f"{gang}.{member}"
    body = {"PodName": name, "PodNamespace": "bench", "PodUID": name, "Node": node_of(member)}
    return post("/bind", body)


def members(count: int) -> list[str]:
    return [f"worker-{number}" for number in range(count)]


@contextlib.contextmanager
def serving() -> Iterator[int]:
    """The server in a process of its own; its port."""
    command = [sys.executable, "-m", "bench.filter", "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline() if process.stdout else "")
        finally:
            process.terminate()


def serve() -> None:
    """Print a port and serve until killed. One member of the parked gang never comes."""
    clock = RealClock()
    binder = Binder(ApiServer(), clock)
    gate = Gate(binder, Silent(), clock, http_timeout_seconds=3600.0, bind_timeout_seconds=3600.0)
    gate.expect(PARKED_GANG, 1, {member: node_of(member) for member in members(PARKED + 1)})
    for gang in range(size(2000, tiny=20)):
        gate.expect(f"bench/gang-{gang}", 1, {member: node_of(member) for member in members(GANG_SIZE)})
    server = ExtenderServer(Loopback(), Service(Table(), gate), clock)
    for part in (binder, gate, server):
        part.start()
    print(server.port, flush=True)
    threading.Event().wait()


def park(port: int) -> list[Connection]:
    """Filter and bind all members but the last; the connections on which nobody answers."""
    filtering = Connection(port)
    parked = []
    for member in members(PARKED):
        filtering.call(filter_request("parked", member))
        parked.append(Connection(port))
        parked[-1].send(bind_request("parked", member))
    filtering.close()
    return parked


def milliseconds(port: int, request: bytes) -> list[float]:
    """How long each of many calls takes."""
    connection = Connection(port)
    taken = []
    for _ in range(WARM_UP + CALLS):
        begin = time.perf_counter()
        connection.call(request)
        taken.append((time.perf_counter() - begin) * 1000.0)
    connection.close()
    return taken[WARM_UP:]


class Gangs:
    """Lets gangs arrive and be bound until it is left; `bound` says how many were."""

    def __init__(self, port: int, first: int) -> None:
        self._port = port
        self._next = first
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gangs")
        self.bound = 0

    def __enter__(self) -> Gangs:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        filtering = Connection(self._port)
        while not self._stop.wait(1.0 / GANGS_PER_SECOND):
            self._one(filtering, f"gang-{self._next}")
            self._next += 1
        filtering.close()

    def _one(self, filtering: Connection, gang: str) -> None:
        connections = []
        for member in members(GANG_SIZE):
            filtering.call(filter_request(gang, member))
            connections.append(Connection(self._port))
            connections[-1].send(bind_request(gang, member))
        for connection in connections:
            error = json.loads(connection.receive())["Error"]
            if error:
                raise RuntimeError(f"a pod was not bound: {error}")
            connection.close()
        self.bound += 1


def p99(taken: Sequence[float]) -> float:
    return statistics.quantiles(taken, n=100)[98]


def main() -> int:
    """Print the figures; 1 if one missed what it must reach."""
    placed, waiting = filter_request("free", "worker-1"), filter_request("waiting", "worker-1")
    figures: dict[str, list[float]] = {"filter_p50": [], "filter_p99": [], "filter_waiting_p99": []}
    figures["filter_binding_p99"] = []
    gangs = 0
    with serving() as port:
        parked = park(port)
        progress(f"{len(parked)} calls are parked; {CALLS} calls of {len(placed)} bytes a round")
        for number in range(1, ROUNDS + 1):
            taken = milliseconds(port, placed)
            figures["filter_p50"].append(statistics.median(taken))
            figures["filter_p99"].append(p99(taken))
            figures["filter_waiting_p99"].append(p99(milliseconds(port, waiting)))
            with Gangs(port, gangs) as load:
                figures["filter_binding_p99"].append(p99(milliseconds(port, placed)))
            gangs += load.bound
            progress(f"round {number} of {ROUNDS}: " + ", ".join(f"{k} {v[-1]:.3g} ms" for k, v in figures.items()))
        for connection in parked:
            connection.close()
    extra = {"nodes": NODES, "parked": PARKED, "request_bytes": len(placed)}
    reach = Reach(max_value=REACH_MS)
    return 0 if all([report(name, "ms", values, reach=reach, **extra) for name, values in figures.items()]) else 1


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        sys.exit(main())
