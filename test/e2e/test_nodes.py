"""The contract of real nodes: they are separate machines, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import machine
from helpers.cluster import Cluster, pod_path
from helpers.plainpods import SERVER, create_pod, phase, pod
from helpers.poll import eventually
from localcluster import binaries, network, node, process, stack, state

pytestmark = pytest.mark.nodes

HACK = Path(stack.__file__).parents[1]


def service(name: str, app: str, port: int, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"selector": {"app": app}, "ports": [{"port": port, "targetPort": 8000}], **spec},
    }


def kubectl(cluster: Cluster, *arguments: str, check: bool = True) -> str:
    argv = [str(binaries.ensure("kubectl")), f"--kubeconfig={cluster.kubeconfig}", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=check).stdout


def is_available(cluster: Cluster, space: str, name: str) -> bool:
    conditions = cluster.api.get(pod_path(space, name))["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    argv = [sys.executable, "-m", "localcluster", *arguments]
    return subprocess.run(
        argv, env={**env, "PYTHONPATH": str(HACK)}, capture_output=True, text=True, timeout=200, check=False, **options
    )


def test_nodes_share_out_the_machine_and_do_not_count_it_twice(nodes: Cluster) -> None:
    reported = [one["status"] for one in nodes.api.list("/api/v1/nodes")]
    assert len(reported) == 2
    assert (
        sum(int(status["allocatable"]["cpu"].removesuffix("m")) for status in reported) <= (os.cpu_count() or 1) * 1000
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
    assert sum(int(status["allocatable"]["memory"].removesuffix("Ki")) for status in reported) <= memory


def test_pods_on_all_nodes_find_each_other_by_name_and_by_service_address(nodes: Cluster, space: str) -> None:
    probe = {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1}
    create_pod(nodes, space, pod("web", SERVER, "node-1", readinessProbe=probe))
    nodes.api.create(f"/api/v1/namespaces/{space}/services", service("headless", "web", 8000, clusterIP="None"))
    nodes.api.create(f"/api/v1/namespaces/{space}/services", service("virtual", "web", 80))
    eventually(lambda: is_available(nodes, space, "web"))
    script = (
        "import sys, time, urllib.request as u\n"
        "for host in sys.argv[1:]:\n"
        "    for attempt in range(50):\n"
        "        try: print(host, u.urlopen(f'http://{host}', timeout=2).status); break\n"
        "        except OSError: time.sleep(0.2)\n"
    )
    hosts = ["headless:8000", f"headless.{space}.svc.cluster.local:8000", "virtual"]
    argv = ["python3", "-c", script, *hosts]
    for number in (1, 2):
        create_pod(nodes, space, pod(f"client-{number}", argv, f"node-{number}"))
    eventually(lambda: {phase(nodes, space, f"client-{number}") for number in (1, 2)} == {"Succeeded"})
    for number in (1, 2):
        said = kubectl(nodes, "logs", "-n", space, f"client-{number}")
        assert said.splitlines() == [f"{host} 200" for host in hosts]


def test_logs_exec_and_port_forward_work(nodes: Cluster, space: str) -> None:
    probe = {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1}
    command = ["sh", "-c", f"echo hello; exec {' '.join(SERVER)}"]
    create_pod(nodes, space, pod("web", command, "node-2", readinessProbe=probe))
    # Listening, not only running: kubectl gives a port up after the first connection that is refused.
    eventually(lambda: is_available(nodes, space, "web"))
    eventually(lambda: kubectl(nodes, "logs", "-n", space, "web").startswith("hello"))
    assert kubectl(nodes, "exec", "-n", space, "web", "--", "hostname") == "web\n"
    argv = [
        str(binaries.ensure("kubectl")),
        f"--kubeconfig={nodes.kubeconfig}",
        "port-forward",
        "-n",
        space,
        "web",
        ":8000",
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as forward:
        assert forward.stdout is not None
        port = int(forward.stdout.readline().partition(" -> ")[0].rpartition(":")[2])
        answer = eventually(lambda: answer_of(port))
        forward.terminate()
    assert answer == 200


def answer_of(port: int) -> int | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=5) as answer:
            return int(answer.status)
    except OSError:
        return None


def test_a_pod_talks_to_the_api_server_with_the_token_that_it_got(nodes: Cluster, space: str) -> None:
    script = (
        "import json, ssl, urllib.request as u\n"
        "folder = '/var/run/secrets/kubernetes.io/serviceaccount/'\n"
        "review = {'apiVersion': 'authentication.k8s.io/v1', 'kind': 'SelfSubjectReview'}\n"
        "url = 'https://kubernetes.default.svc/apis/authentication.k8s.io/v1/selfsubjectreviews'\n"
        "headers = {'Authorization': 'Bearer ' + open(folder + 'token').read(), 'Content-Type': 'application/json'}\n"
        "request = u.Request(url, json.dumps(review).encode(), headers)\n"
        "context = ssl.create_default_context(cafile=folder + 'ca.crt')\n"
        "print(json.load(u.urlopen(request, context=context))['status']['userInfo']['username'])"
    )
    create_pod(nodes, space, pod("inside", ["python3", "-c", script]))
    eventually(lambda: phase(nodes, space, "inside") in ("Succeeded", "Failed"))
    assert kubectl(nodes, "logs", "-n", space, "inside") == f"system:serviceaccount:{space}:default\n"


def test_nothing_leaves_the_machine(nodes: Cluster, space: str) -> None:
    """198.51.100.1 is an address for documentation; a packet to it would take the machine's default route."""
    assert nodes.own, "an existing cluster may well have a way out"
    script = (
        "import socket\n"
        "for host in ('198.51.100.1', 'example.org'):\n"
        "    try: socket.create_connection((host, 80), 3); print('connected')\n"
        "    except OSError as error: print(type(error).__name__)"
    )
    create_pod(nodes, space, pod("runaway", ["python3", "-c", script]))
    eventually(lambda: phase(nodes, space, "runaway") == "Succeeded")
    assert kubectl(nodes, "logs", "-n", space, "runaway") in ("TimeoutError\ngaierror\n", "OSError\ngaierror\n")


def test_a_kubelet_that_ends_is_started_again(nodes: Cluster) -> None:
    plan = network.claim_of(nodes.folder)
    assert plan is not None

    def kubelet() -> int | None:
        mine = node.processes(plan, 1, nodes.folder)
        return next((one.pid for one in mine if comm(one.pid) == "kubelet"), None)

    first = kubelet()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: (again := kubelet()) != first and again)


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@pytest.fixture
def name() -> Iterator[str]:
    """A stack of the test's own, taken down afterwards whatever happened."""
    name = f"{stack.TEST_PREFIX}{os.getpid()}-own"
    yield name
    stack.down(state.stack_dir(name))


def test_a_stack_that_is_deleted_leaves_nothing_behind(name: str) -> None:
    before = machine.listing()
    up = command("up", "--nodes", "2", "--name", name)
    assert up.returncode == 0, up.stderr
    folder = state.stack_dir(name)
    plan = network.claim_of(folder)
    assert plan is not None
    running = machine.processes(plan, folder)
    assert {"etcd", "kubelet", "containerd", "coredns"} <= {Path(words.split()[0]).name for words in running.values()}
    assert machine.listing()["sysctls"] == before["sysctls"]
    assert command("down", "--name", name).returncode == 0
    assert machine.processes(plan, folder) == {}
    assert machine.listing(plan, folder) == before
    assert {entry.name for entry in folder.iterdir()} <= {"logs", "lock", "command.lock"}


def has_containerd(folder: Path) -> bool:
    plan = network.claim_of(folder)
    running = machine.processes(plan, folder) if plan else {}
    return any(Path(words.split()[0]).name == "containerd" for words in running.values())


def test_a_node_that_dies_while_it_starts_is_started_again(name: str) -> None:
    folder = state.stack_dir(name)
    argv = [sys.executable, "-m", "localcluster", "up", "--nodes", "2", "--name", name]
    env = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"} | {"PYTHONPATH": str(HACK)}
    with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) as up:
        plan = eventually(lambda: network.claim_of(folder), 60, 0.01)
        process.end(eventually(lambda: node.processes(plan, 2, folder), 60, 0.01))
        assert up.stderr is not None
        said = up.stderr.read()
    assert up.returncode == 0, said
    assert "not ready: node-2 (its first program has ended); starting again" in said


def test_a_start_that_is_killed_half_way_leaves_nothing_that_down_does_not_remove(name: str) -> None:
    before = machine.listing()
    folder = state.stack_dir(name)
    argv = [sys.executable, "-m", "localcluster", "up", "--nodes", "2", "--name", name]
    with subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(HACK)}, stderr=subprocess.DEVNULL) as up:
        eventually(lambda: has_containerd(folder), 30, 0.01)
        assert up.poll() is None
        up.kill()
    plan = network.claim_of(folder)
    stack.down(folder)
    assert network.claim_of(folder) is None
    assert process.marked(folder) == []
    assert machine.listing(plan, folder) == before
