"""The contract of real nodes: they are separate machines, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import interrupt, machine
from helpers.cluster import Cluster, pod_path
from helpers.plainpods import SERVER, SLEEP, create_pod, phase, pod
from helpers.poll import eventually
from localcluster import binaries, images, network, node, process, stack, state
from localcluster import nodes as nodes_module

pytestmark = pytest.mark.nodes

HACK = Path(stack.__file__).parents[1]


def service(name: str, app: str, port: int, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"selector": {"app": app}, "ports": [{"port": port, "targetPort": 8000}], **spec},
    }


def kubectl(cluster: Cluster, *arguments: str, check: bool = True) -> str:
    argv = [str(binaries.ensure("kubectl")), f"--kubeconfig={cluster.kubeconfig}", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=check).stdout


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


@pytest.mark.long
def test_a_pod_that_takes_too_much_memory_is_killed_and_says_so(nodes: Cluster, space: str) -> None:
    limit = {"limits": {"memory": "40Mi"}}
    create_pod(nodes, space, pod("greedy", ["python3", "-c", "x = b'1' * 10**9"], resources=limit))
    eventually(lambda: phase(nodes, space, "greedy") == "Failed")
    (status,) = nodes.api.get(pod_path(space, "greedy"))["status"]["containerStatuses"]
    assert (status["state"]["terminated"]["reason"], status["state"]["terminated"]["exitCode"]) == ("OOMKilled", 137)


def test_a_processor_limit_holds(nodes: Cluster, space: str) -> None:
    script = (
        "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass\n"
        "print('used', time.process_time() < 1.0)"
    )
    create_pod(nodes, space, pod("slow", ["python3", "-c", script], resources={"limits": {"cpu": "200m"}}))
    eventually(lambda: phase(nodes, space, "slow") == "Succeeded")
    assert kubectl(nodes, "logs", "-n", space, "slow") == "used True\n"


@pytest.mark.long
def test_an_image_that_is_not_there_is_reported_as_on_any_cluster(nodes: Cluster, space: str) -> None:
    create_pod(nodes, space, pod("unknown", SLEEP, image="localhost/does-not-exist"))

    def reason() -> str:
        statuses = nodes.api.get(pod_path(space, "unknown"))["status"].get("containerStatuses", ())
        return next((one["state"].get("waiting", {}).get("reason", "") for one in statuses), "")

    eventually(lambda: reason() in ("ErrImagePull", "ImagePullBackOff"))


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


def test_this_projects_own_image_runs_without_rights_on_a_read_only_root(nodes: Cluster, space: str) -> None:
    nodes_module.load_image(nodes.folder, images.CONTROLLER)
    security = {
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    body = pod("own", [], image=images.CONTROLLER, args=["--version"], securityContext=security)
    del body["spec"]["containers"][0]["command"]
    create_pod(nodes, space, body)
    eventually(lambda: phase(nodes, space, "own") in ("Succeeded", "Failed"))
    assert kubectl(nodes, "logs", "-n", space, "own").startswith("tfjob-controller ")
    assert phase(nodes, space, "own") == "Succeeded"


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


def _has_pki(folder: Path) -> bool:
    return (folder / "pki").exists()


def _has_containerd(folder: Path) -> bool:
    plan = network.claim_of(folder)
    running = machine.processes(plan, folder) if plan else {}
    return any(Path(words.split()[0]).name == "containerd" for words in running.values())


@pytest.mark.parametrize(
    "is_far_enough",
    [*(pytest.param(early, marks=pytest.mark.long) for early in (network.claim_of, _has_pki)), _has_containerd],
)
def test_a_start_that_is_killed_half_way_leaves_nothing_that_down_does_not_remove(
    name: str, is_far_enough: Callable[[Path], object]
) -> None:
    before = machine.listing()
    folder = state.stack_dir(name)
    argv = [sys.executable, "-m", "localcluster", "up", "--nodes", "2", "--name", name]
    with subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(HACK)}, stderr=subprocess.DEVNULL) as up:
        eventually(lambda: is_far_enough(folder), 30, 0.01)
        assert up.poll() is None
        up.kill()
    plan = network.claim_of(folder)
    stack.down(folder)
    assert network.claim_of(folder) is None
    assert process.marked(folder) == []
    assert machine.listing(plan, folder) == before


@pytest.mark.long
def test_an_interrupted_start_takes_itself_down(name: str) -> None:
    argv = [sys.executable, "-m", "localcluster", "up", "--nodes", "2", "--name", name]
    env = {**os.environ, "PYTHONPATH": str(HACK)}
    with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True, preexec_fn=interrupt.allow) as up:
        eventually(lambda: network.claim_of(state.stack_dir(name)))
        up.send_signal(signal.SIGINT)
        words = up.communicate(timeout=60)[1]
    assert (up.returncode, "Traceback" in words) == (128 + signal.SIGINT, False)
    assert network.claim_of(state.stack_dir(name)) is None
    assert process.marked(state.stack_dir(name)) == []


@pytest.mark.long
def test_a_stack_ends_with_the_process_that_owns_it_however_that_ends(name: str) -> None:
    folder = state.stack_dir(name)
    script = "import sys, time; from pathlib import Path; from localcluster import process, stack\n"
    script += "stack.up(Path(sys.argv[1]), 1, owner=process.myself()); print('up', flush=True); time.sleep(1000)"
    argv = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(
        argv, env={**os.environ, "PYTHONPATH": str(HACK)}, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        plan = network.claim_of(folder)
        assert plan is not None
        owner.kill()
    eventually(lambda: network.claim_of(folder) is None)
    eventually(lambda: process.marked(folder) == [])
    assert not any(f"{plan.number}" in line for line in machine.listing(plan, folder)["control groups"])
