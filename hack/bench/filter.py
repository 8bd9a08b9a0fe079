"""`make bench-filter`: how long kube-scheduler waits for the gang scheduler's filter.

The server runs in a separate process, as it does beside kube-scheduler. The client repeats the same request over one
connection, with the names of 1,000 nodes, while the bind calls of 1,000 members are parked. A table replaces the
decisions, so that the round trip is measured: HTTP, JSON, the verb.

- `filter_p50`, `filter_p99`: a member of a gang, which gets its node.
- `filter_waiting_p99`: a member without a node, so that each of the nodes is rejected with a message.
- `filter_binding_p99`: like the first, while gangs of ten arrive and are bound. Each Binding is a real request to a
  server in another process, which responds after a millisecond.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

from bench.report import ROUNDS, Reach, progress, report, size
from localcluster.programs import write_kubeconfig
from tfjob_controller.gangscheduler.binding.binder import Binder
from tfjob_controller.gangscheduler.bindrequests import GangMember
from tfjob_controller.gangscheduler.extender.server import new_server
from tfjob_controller.gangscheduler.extender.verbs import ExtenderVerbs, GangPlacements, NodeAssignment
from tfjob_controller.gangscheduler.extender.wire import WirePod
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


def node_of(member: str) -> str:
    return f"node-{int(member.rpartition('-')[2]) % NODES:05d}.example.internal"


def connect(port: int) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS)


def call(connection: HTTPConnection, path: str, body: bytes) -> bytes:
    """Sends a request and returns the body of its response, after which the connection takes the next one."""
    connection.request("POST", path, body)
    return connection.getresponse().read()


def filter_body(gang: str, member: str) -> bytes:
    """Returns the body of a request with a pod as large as those of a TFJob."""
    environment = [{"name": f"VARIABLE_{number}", "value": "x" * 60} for number in range(20)]
    containers = [{"name": "tensorflow", "image": "tensorflow", "env": environment}]
    name = f"{gang}.{member}"
    pod = {"metadata": {"name": name, "namespace": "bench", "uid": name}, "spec": {"containers": containers}}
    names = [node_of(f"node-{number}") for number in range(NODES)]
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()


def bind_body(gang: str, member: str) -> bytes:
    name = f"{gang}.{member}"
    return json.dumps({"PodName": name, "PodNamespace": "bench", "PodUID": name, "Node": node_of(member)}).encode()


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


class Binding(BaseHTTPRequestHandler):
    """Responds to every request as an API server does to a Binding, after about its time."""

    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(_BIND_SECONDS)
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


def serve_bindings() -> None:
    """Prints a port and serves until killed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Binding)
    print(server.server_address[1], flush=True)
    server.serve_forever()


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


def park(port: int) -> list[HTTPConnection]:
    """Filters and binds all members but the last; returns the connections, which wait for a response."""
    filter_all(port, "parked", PARKED)
    return [bind(port, "parked", member) for member in members(PARKED)]


def filter_all(port: int, gang: str, count: int) -> None:
    with contextlib.closing(connect(port)) as connection:
        for member in members(count):
            call(connection, "/filter", filter_body(gang, member))


def bind(port: int, gang: str, member: str) -> HTTPConnection:
    """Sends a request to bind a member over a connection of its own, and returns that."""
    connection = connect(port)
    connection.request("POST", "/bind", bind_body(gang, member))
    return connection


def milliseconds(port: int, body: bytes) -> list[float]:
    """Returns the duration of each of many calls of the filter."""
    taken = []
    with contextlib.closing(connect(port)) as connection:
        for _ in range(WARM_UP + CALLS):
            begin = time.perf_counter()
            call(connection, "/filter", body)
            taken.append((time.perf_counter() - begin) * 1000.0)
    return taken[WARM_UP:]


def create_gangs(port: int, first: int) -> None:
    """Lets gangs arrive, after a line on standard output.

    All members are filtered in advance, since kube-scheduler never filters two pods at the same time.
    """
    names = [f"gang-{first + number}" for number in range(GANGS_A_ROUND)]
    for name in names:
        filter_all(port, name, GANG_SIZE)
    print("started", flush=True)
    for name in names:
        time.sleep(1.0 / GANGS_PER_SECOND)
        for connection in [bind(port, name, member) for member in members(GANG_SIZE)]:
            error = json.load(connection.getresponse())["Error"]
            if error:
                raise RuntimeError(f"a pod was not bound: {error}")
            connection.close()


def p99(taken: Sequence[float]) -> float:
    return statistics.quantiles(taken, n=100)[98]


def one_round(port: int, number: int) -> dict[str, float]:
    """Returns the milliseconds of each figure."""
    placed, waiting = filter_body("free", "worker-1"), filter_body("waiting", "worker-1")
    taken, taken_waiting = milliseconds(port, placed), milliseconds(port, waiting)
    with program("gangs", str(port), str(GANGS_A_ROUND * number)) as binding:
        _line_of(binding)
        taken_binding = milliseconds(port, placed)
        if binding.poll():
            raise RuntimeError("no gangs were bound meanwhile")
    return {
        "filter_p50": statistics.median(taken),
        "filter_p99": p99(taken),
        "filter_waiting_p99": p99(taken_waiting),
        "filter_binding_p99": p99(taken_binding),
    }


def measure() -> list[dict[str, float]]:
    """Returns the figures of each round."""
    rounds = []
    with program("api") as api, program("serve", _line_of(api)) as server:
        port = int(_line_of(server))
        parked = park(port)
        progress(f"{len(parked)} calls wait; {CALLS} calls for {NODES} nodes of each kind a round")
        for number in range(ROUNDS):
            rounds.append(one_round(port, number))
            latest = ", ".join(f"{name} {value:.3g}" for name, value in rounds[-1].items())
            progress(f"round {number + 1} of {ROUNDS}: {latest} ms")
        for connection in parked:
            connection.close()
    return rounds


def main() -> int:
    """Prints the figures. Returns 1 if one missed its target."""
    rounds, ok = measure(), True
    for name in rounds[0]:
        values = [figures[name] for figures in rounds]
        ok &= report(name, "ms", values, reach=Reach(max_value=REACH_MS), nodes=NODES, parked=PARKED)
    return 0 if ok else 1


def run(arguments: list[str]) -> int:
    """Runs one of the processes, or starts all of them."""
    match arguments:
        case ["api"]:
            serve_bindings()
        case ["serve", api_port]:
            serve(int(api_port))
        case ["gangs", port, first]:
            create_gangs(int(port), int(first))
        case _:
            return main()
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
