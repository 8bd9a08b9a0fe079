"""`make bench-filter`: how long kube-scheduler waits for the gang scheduler's filter.

The server runs in a separate process, as it does beside kube-scheduler. The client repeats the same request over one
connection, with the names of 1,000 nodes, while the bind calls of 1,000 members are parked. A table replaces the
decisions, so that the round trip is measured: HTTP, JSON, the verb.

- `filter_p50`, `filter_p99`: a member of a gang, which gets its node.
- `filter_waiting_p99`: a member without a node, so that each of the nodes is rejected with a message.
- `filter_binding_p99`: like the first, while gangs of ten arrive and are bound. Each Binding is a real request to a
  server in another process, which responds after a millisecond.

The baseline is the same request to a server that reads it and responds with fixed bytes: a round trip on the same
machine at the same time, without HTTP, JSON and verb.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bench.report import ROUNDS, Reach, progress, report, size
from localcluster.programs import write_kubeconfig
from tfjob_controller.gangscheduler.binding.binder import Binder
from tfjob_controller.gangscheduler.bindrequests import GangMember
from tfjob_controller.gangscheduler.extender.server import new_server
from tfjob_controller.gangscheduler.extender.verbs import ExtenderVerbs, GangPlacements, NodeAssignment
from tfjob_controller.gangscheduler.extender.wire import FilterResult, WirePod, encode_answer
from tfjob_controller.gangscheduler.permit.permit import Permit
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.http.transport import Transport
from tfjob_controller.programs.gangscheduler import SWITCH_SECONDS
from tfjob_controller.util.clock import Clock, RealClock

NODES = size(1000, tiny=10)
PARKED = size(1000, tiny=10)
CALLS = size(3000, tiny=20)
WARM_UP = size(200, tiny=2)
GANG_SIZE = 10
PARKED_GANG, WAITING_GANG = "bench/parked", "bench/waiting"
# Gangs of ten that arrive per second during the measurement: about the rate of kube-scheduler.
GANGS_PER_SECOND = 30
GANGS_A_ROUND = size(200, tiny=3)
REACH_MS = 2.0
_TIMEOUT_SECONDS = 60.0
# More connections than the binder has threads.
POOL_SIZE = 32
# Approximate time of an API server for a Binding.
_BIND_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Loopback:
    host: str = "127.0.0.1"
    port: int = 0


class Table:
    """Replaces `GangPlacements`: every member has a node, except in the waiting gang."""

    def is_synced(self) -> bool:
        return True

    def member_of(self, pod: WirePod) -> GangMember | None:
        gang, _, member = pod.metadata.name.partition(".")
        return GangMember(f"bench/{gang}", 1, member)

    def node_for(self, gang_key: str, attempt: int, member: str) -> NodeAssignment:
        return NodeAssignment(reason="the gang waits") if gang_key == WAITING_GANG else NodeAssignment(node_of(member))

    def allowed_nodes(self, pod: WirePod, names: Sequence[str]) -> tuple[Sequence[str], Mapping[str, str]]:
        return names, {}


class Connection:
    """A keep-alive connection with as little overhead as possible."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> bytes:
        """Returns the body of one response."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive_part()
        head, _, body = data.partition(b"\r\n\r\n")
        while len(body) < content_length(head):
            body += self._receive_part()
        return body

    def call(self, request: bytes) -> bytes:
        self.send(request)
        return self.receive()

    def close(self) -> None:
        self._socket.close()

    def _receive_part(self) -> bytes:
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
    """Returns a request with a pod as large as those of a TFJob."""
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
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs the module as a process until the end of the block."""
    command = [sys.executable, "-m", "bench.filter", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def _line_of(process: subprocess.Popen[str]) -> str:
    line = process.stdout.readline().strip() if process.stdout else ""
    if not line:
        raise RuntimeError("a process of the bench has ended")
    return line


class Stub(asyncio.Protocol):
    """Sends the same bytes after each request, at once or after a delay."""

    def __init__(self, answer: bytes, delay_seconds: float) -> None:
        self._answer = answer
        self._delay_seconds = delay_seconds
        self._request = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._request += data
        head, ends, body = self._request.partition(b"\r\n\r\n")
        if not ends or len(body) < content_length(head):
            return
        self._request = b""
        if self._delay_seconds:
            asyncio.get_running_loop().call_later(self._delay_seconds, self._transport.write, self._answer)
        else:
            self._transport.write(self._answer)


def content_length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])


async def serve_stub(body: bytes, delay_seconds: float = 0.0) -> None:
    """Prints a port and serves until killed."""
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Stub(answer, delay_seconds), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _transport(api_port: int, clock: Clock) -> Transport:
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        write_kubeconfig(kubeconfig, f"http://127.0.0.1:{api_port}")
        return Transport(load_config(str(kubeconfig)), qps=0, pool_size=POOL_SIZE, clock=clock)


def serve(api_port: int) -> None:
    """Prints a port and serves until killed. One member of the parked gang never arrives."""
    sys.setswitchinterval(SWITCH_SECONDS)
    clock = RealClock()
    binder = Binder(_transport(api_port, clock), clock)
    state = SharedState(Store(), clock)
    permit = Permit(
        binder.submit,
        state,
        clock,
        http_timeout_seconds=3600.0,
        bind_timeout_seconds=3600.0,
        admitted_timeout_seconds=3600.0,
    )
    permit.set_placement(PARKED_GANG, 1, {member: node_of(member) for member in members(PARKED + 1)})
    for gang in range(GANGS_A_ROUND * ROUNDS):
        permit.set_placement(f"bench/gang-{gang}", 1, {member: node_of(member) for member in members(GANG_SIZE)})
    verbs = ExtenderVerbs(cast("GangPlacements", Table()), permit, state)
    server = new_server(Loopback(), verbs, clock)
    for part in (binder, permit, server):
        part.start()
    print(server.port, flush=True)
    threading.Event().wait()


def park(port: int) -> list[Connection]:
    """Filters and binds all members but the last; returns the connections, which wait for a response."""
    filtering = Connection(port)
    parked = []
    for member in members(PARKED):
        filtering.call(filter_request("parked", member))
        parked.append(Connection(port))
        parked[-1].send(bind_request("parked", member))
    filtering.close()
    return parked


def milliseconds(port: int, request: bytes) -> list[float]:
    """Returns the duration of each of many calls."""
    connection = Connection(port)
    taken = []
    for _ in range(WARM_UP + CALLS):
        begin = time.perf_counter()
        connection.call(request)
        taken.append((time.perf_counter() - begin) * 1000.0)
    connection.close()
    return taken[WARM_UP:]


def create_gangs(port: int, first: int) -> None:
    """Lets gangs arrive, after a line on standard output."""
    names = [f"gang-{first + number}" for number in range(GANGS_A_ROUND)]
    filter_all(port, names)
    print("started", flush=True)
    for name in names:
        time.sleep(1.0 / GANGS_PER_SECOND)
        bind_gang(port, name)


def filter_all(port: int, names: Sequence[str]) -> None:
    """Filters all members in advance, since kube-scheduler never filters two pods at the same time."""
    filtering = Connection(port)
    for gang in names:
        for member in members(GANG_SIZE):
            filtering.call(filter_request(gang, member))
    filtering.close()


def bind_gang(port: int, gang: str) -> None:
    """Binds all members, each over its own connection."""
    connections = [Connection(port) for _ in range(GANG_SIZE)]
    for connection, member in zip(connections, members(GANG_SIZE), strict=True):
        connection.send(bind_request(gang, member))
    for connection in connections:
        error = json.loads(connection.receive())["Error"]
        if error:
            raise RuntimeError(f"a pod was not bound: {error}")
        connection.close()


def p99(taken: Sequence[float]) -> float:
    return statistics.quantiles(taken, n=100)[98]


def one_round(port: int, bare_port: int, number: int) -> dict[str, tuple[float, float]]:
    """Returns the milliseconds of each figure, and those of the bare round trip just before it."""
    placed, waiting = filter_request("free", "worker-1"), filter_request("waiting", "worker-1")
    bare, taken = milliseconds(bare_port, placed), milliseconds(port, placed)
    figures = {
        "filter_p50": (statistics.median(taken), statistics.median(bare)),
        "filter_p99": (p99(taken), p99(bare)),
    }
    bare, taken = milliseconds(bare_port, placed), milliseconds(port, waiting)
    figures["filter_waiting_p99"] = (p99(taken), p99(bare))
    with program("gangs", str(port), str(GANGS_A_ROUND * number)) as binding:
        _line_of(binding)
        bare, taken = milliseconds(bare_port, placed), milliseconds(port, placed)
        if binding.poll():
            raise RuntimeError("no gangs were bound meanwhile")
    figures["filter_binding_p99"] = (p99(taken), p99(bare))
    return figures


def measure() -> list[dict[str, tuple[float, float]]]:
    """Returns the figures of each round."""
    rounds = []
    with program("api") as api, program("serve", _line_of(api)) as server, program("bare") as bare:
        port, bare_port = int(_line_of(server)), int(_line_of(bare))
        parked = park(port)
        progress(f"{len(parked)} calls wait; {CALLS} calls for {NODES} nodes of each kind a round")
        for number in range(ROUNDS):
            rounds.append(one_round(port, bare_port, number))
            latest = ", ".join(f"{name} {value:.3g}" for name, (value, _) in rounds[-1].items())
            progress(f"round {number + 1} of {ROUNDS}: {latest} ms")
        for connection in parked:
            connection.close()
    return rounds


def main() -> int:
    """Prints the figures. Returns 1 if one missed its target."""
    rounds, ok = measure(), True
    for name in rounds[0]:
        values, baselines = zip(*(figures[name] for figures in rounds), strict=True)
        reach = Reach(max_value=REACH_MS)
        ok &= report(name, "ms", values, baselines=baselines, reach=reach, nodes=NODES, parked=PARKED)
    return 0 if ok else 1


def run(arguments: list[str]) -> int:
    """Runs one of the processes, or starts all of them."""
    match arguments:
        case ["api"]:
            asyncio.run(serve_stub(b"{}", _BIND_SECONDS))
        case ["serve", api_port]:
            serve(int(api_port))
        case ["bare"]:
            asyncio.run(serve_stub(encode_answer(FilterResult(node_names=[node_of("worker-1")]))))
        case ["gangs", port, first]:
            create_gangs(int(port), int(first))
        case _:
            return main()
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
