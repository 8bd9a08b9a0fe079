"""Attacks on a controller that runs as it is shipped, a process on a real control plane, from outside it.

The attacker reaches the ports of probes and metrics, as every pod can, and may create jobs in one namespace. What it
costs is bounded: the memory of the process, the time of a probe, and the time until another tenant's job starts.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.usage import peak_resident_bytes, resident_bytes
from helpers.cluster import Cluster
from helpers.controller import Jobs
from helpers.manifests import container, master, pod_template, tfjob, workers
from helpers.poll import PATIENCE_SECONDS, eventually
from localcluster import ports
from localcluster.api import Api, RefusedError
from localcluster.crds import install_crds
from localcluster.ourprogram import METRICS, PROBES, OurProgram
from localcluster.programs import LOOPBACK

pytestmark = pytest.mark.cluster

MB = 1_000_000


@pytest.fixture
def controller(own_control_plane: Cluster, tmp_path: Path) -> Iterator[OurProgram]:
    """Of a whole cluster, which may be flooded with objects."""
    with started(own_control_plane, tmp_path) as program:
        yield program


@pytest.fixture
def endpoints(control_plane: Cluster, namespace: str, tmp_path: Path) -> Iterator[OurProgram]:
    """A controller of one namespace, whose ports are attacked."""
    with started(control_plane, tmp_path, f"--namespace={namespace}") as program:
        yield program


@contextlib.contextmanager
def started(cluster: Cluster, folder: Path, *flags: str) -> Iterator[OurProgram]:
    install_crds(cluster.api)
    with ports.reserve(2, LOOPBACK) as (probes, metrics):
        served = {PROBES: probes, METRICS: metrics}
        kubeconfig = cluster.own.kubeconfig
        program = OurProgram("run", kubeconfig, served, *flags, log=folder / "controller.log", mark=kubeconfig.parent)
        program.start()
        try:
            program.wait_ready()
            yield program
        finally:
            program.kill()


def port_of(program: OurProgram, server: str) -> int:
    return int(program.urls[server].rpartition(":")[2])


def is_alive(program: OurProgram) -> bool:
    """A probe on a connection of its own, as the kubelet makes them, by the attacker's address."""
    connection = http.client.HTTPConnection(LOOPBACK, port_of(program, PROBES), timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection), contextlib.suppress(ConnectionError):
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    return False


# So many of `endless` on each of 64 connections, which a server serves at a time, are twice the bound of the test.
PUSHES = 30


def push(client: socket.socket, data: bytes, count: int) -> None:
    """Sends as much of it as the server takes."""
    with contextlib.suppress(OSError):
        for _ in range(count):
            client.sendall(data)


@pytest.mark.parametrize(
    ("head", "endless"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n", b"x: " + b"y" * 65_000 + b"\r\n", id="long header fields"),
        pytest.param(b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 10_000, id="many header fields"),
        pytest.param(
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\nxx\r\n" * 10_000, id="small chunks"
        ),
    ],
)
def test_what_has_no_end_costs_no_memory_and_no_probe(endpoints: OurProgram, head: bytes, endless: bytes) -> None:
    before = peak_resident_bytes(endpoints.pid)
    for server in (PROBES, METRICS):
        with contextlib.ExitStack() as stack:
            address = (LOOPBACK, port_of(endpoints, server))
            clients = [stack.enter_context(socket.create_connection(address)) for _ in range(100)]
            for client in clients:
                client.settimeout(PATIENCE_SECONDS)
                push(client, head, 1)
            threads = [threading.Thread(target=push, args=(client, endless, PUSHES)) for client in clients]
            for thread in threads:
                thread.start()
            eventually(lambda: is_alive(endpoints), PATIENCE_SECONDS)
            for thread in threads:
                thread.join()
    # 64 connections held 427 MB, and 2,186 MB when their heads ended.
    assert peak_resident_bytes(endpoints.pid) - before < 64 * MB
    assert is_alive(endpoints)


def test_silent_connections_from_another_address_keep_no_probe_out(endpoints: OurProgram) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            client = socket.create_connection(
                (LOOPBACK, port_of(endpoints, PROBES)), source_address=("127.0.0.2", 0), timeout=PATIENCE_SECONDS
            )
            stack.enter_context(client)
        for _ in range(20):
            assert is_alive(endpoints)


def test_jobs_that_grow_in_memory_cost_no_more_than_they_are_and_delay_nobody(
    controller: OurProgram, own_control_plane: Cluster
) -> None:
    """Each of them took 14 MB, at every start."""
    hostile = Jobs(own_control_plane.api, "default")
    own_control_plane.api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    other = Jobs(own_control_plane.api, "other")
    before, count = resident_bytes(controller.pid), 6
    bomb = pod_template(container(), tolerations=[{}] * 200_000)
    for number in range(count):
        body = tfjob(master(template=bomb), name=f"bomb-{number}")
        hostile.api.create(hostile.path, json.dumps(body, separators=(",", ":")).encode())
    other.submit(tfjob(master(), name="in-order"))
    begin = time.monotonic()
    eventually(lambda: other.phase("in-order") == "Creating", PATIENCE_SECONDS)
    assert time.monotonic() - begin < PATIENCE_SECONDS
    names = [f"bomb-{number}" for number in range(count)]
    eventually(lambda: all(_phase(hostile, name) == "Failed" for name in names), PATIENCE_SECONDS, 2.0)
    assert resident_bytes(controller.pid) - before < count * 2 * MB + 32 * MB


def _phase(jobs: Jobs, name: str) -> str:
    with contextlib.suppress(RefusedError):
        return jobs.phase(name)
    return ""


def test_hundreds_of_jobs_in_one_namespace_do_not_delay_a_job_in_another(
    controller: OurProgram, own_control_plane: Cluster
) -> None:
    """1,000 of them delayed it by 40 s."""
    api, count = own_control_plane.api, 300
    noisy, other = Jobs(api, "default"), Jobs(api, "other")
    api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    with ThreadPoolExecutor(8) as users:
        list(users.map(lambda number: noisy.submit(tfjob(master(), workers(3), name=f"many-{number}")), range(count)))
    other.submit(tfjob(master(), name="single"))
    eventually(lambda: children(api, "other"), PATIENCE_SECONDS, 0.02)
    assert children(api, "default") < count * 4, "the others' turn comes before all of theirs"


def test_jobs_of_a_thousand_replicas_in_one_namespace_do_not_keep_all_workers(
    controller: OurProgram, own_control_plane: Cluster
) -> None:
    """Each worker created all children of one of them before it took the next job."""
    api, jobs, replicas = own_control_plane.api, 12, 1000
    noisy, other = Jobs(api, "default"), Jobs(api, "other")
    api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    for number in range(jobs):
        noisy.submit(tfjob(master(), workers(replicas), name=f"large-{number}"))
    eventually(lambda: children(api, "default") > jobs, PATIENCE_SECONDS, 0.02)
    other.submit(tfjob(master(), name="single"))
    eventually(lambda: children(api, "other"), PATIENCE_SECONDS, 0.02)
    assert children(api, "default") < replicas // 2, "the others' turn comes before one of them has all children"


def children(api: Api, namespace: str) -> int:
    return len(api.list(f"/apis/batch/v1/namespaces/{namespace}/jobs"))
