"""The shipped Deployment on real nodes, from the rendered manifest: its pods are what it says, jobs run, a leader's
node may be lost.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import deployed
from helpers.cluster import Cluster
from helpers.controller import Jobs
from helpers.deployed import SYSTEM
from helpers.errand import ERRAND, preferring, template
from helpers.kubectl import Kubectl
from helpers.manifests import container, master, parameter_servers, tfjob, workers
from helpers.poll import eventually
from localcluster import nodes as nodes_module
from localcluster import stack
from localcluster.api import RefusedError
from localcluster.images import TENSORFLOW

# A node is given up after 30 s, on two processors that may be busy otherwise.
pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("tensorflow")]

OVERLAY = "standalone"
NAME = "tfjob-controller"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:{NAME}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{NAME}"
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
PATIENCE_SECONDS = 600.0

Object = dict[str, Any]

# What the kernel says of the container's first process, and what becomes of writing where programs and libraries are.
LOOK = """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/1/status"))
def write(folder):
    try:
        open(os.path.join(folder, "probe"), "w").close()
    except OSError as error:
        return error.strerror
    return "written"
(root,) = [line.split()[3] for line in open("/proc/1/mounts") if line.split()[1] == "/"]
names = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
print(json.dumps({
    "kernel": {name: status[name].split() for name in names},
    "root": root.split(",")[0],
    "writes": {folder: write(folder) for folder in ("/", "/tmp", "/usr/local/bin", "/var/lib", "/home")},
    "command": open("/proc/1/cmdline").read().split("\\0"),
}))
"""
REACH_SERVER = """
import json, os, socket, time
host, port = json.loads(os.environ["TF_CONFIG"])["cluster"]["ps"][0].split(":")
while True:
    try:
        socket.create_connection((host, int(port)), 5).close()
        break
    except OSError:
        time.sleep(0.2)
print("reached")
"""
USER, NOTHING = "65532", "0000000000000000"
EXPECTED_KERNEL = {
    "Uid": [USER] * 4,
    "Gid": [USER] * 4,
    "Groups": [USER],
    "NoNewPrivs": ["1"],
    "Seccomp": ["2"],
    **{name: [NOTHING] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")},
}


@pytest.fixture
def system(own_nodes: Cluster, tmp_path: Path) -> Iterator[Kubectl]:
    """kubectl in the namespace of the Deployment, which is rolled out."""
    with deployed.installed(own_nodes, OVERLAY, tmp_path / "installed") as kubectl:
        deployed.await_rollout(kubectl, NAME)
        yield kubectl


def test_the_shipped_deployment_runs_jobs_with_no_rights_to_spare_and_outlives_the_node_of_its_leader(
    system: Kubectl, own_nodes: Cluster, space: str, kubectl: Kubectl
) -> None:
    pods = controllers(own_nodes)
    assert sorted(pods.values()) == ["node-1", "node-2"]
    for name in pods:
        check_container(system, name)
        check_account(system, own_nodes, name)
    check_pod_security(own_nodes)

    jobs = Jobs(own_nodes.api, space)
    run_with_server(jobs, kubectl)

    leader = holder(own_nodes)
    eventually(lambda: leading(system, pods) == {name: float(name == leader) for name in pods})
    submit_errand(jobs, kubectl, leader_node=pods[leader])
    number = int(pods[leader].removeprefix("node-"))
    before = own_nodes.api.get(LEASE)["spec"]
    stack.node_kill(own_nodes.folder, number)
    try:
        check_takeover(system, own_nodes, pods, before)
        check_errand(jobs, kubectl)
    finally:
        stack.node_start(own_nodes.folder, number)
    deployed.await_rollout(system, NAME)


def controllers(cluster: Cluster) -> dict[str, str]:
    """The node of each pod of the Deployment that is not ending."""
    pods = cluster.api.list(f"/api/v1/namespaces/{SYSTEM}/pods", f"app={NAME}")
    living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in living}


def holder(cluster: Cluster) -> str:
    """The pod that leads."""
    identity = eventually(lambda: (cluster.api.find(LEASE) or {"spec": {}})["spec"].get("holderIdentity"))
    return str(identity).partition("_")[0]


def leading(system: Kubectl, names: list[str] | dict[str, str]) -> dict[str, float]:
    """`leader_election_master_status` as a scraper reads it from each pod, here through the API server."""
    found = {}
    for name in names:
        path = f"/api/v1/namespaces/{SYSTEM}/pods/{name}:8080/proxy/metrics"
        lines = system.must("get", "--raw", path).splitlines()
        series = f'leader_election_master_status{{name="{NAME}"}} '
        (found[name],) = [float(line.removeprefix(series)) for line in lines if line.startswith(series)]
    return found


def check_container(system: Kubectl, pod: str) -> None:
    """What the manifest promises is what the kernel does."""
    seen = json.loads(system.must("exec", pod, "--", "python3", "-c", LOOK))
    assert seen["kernel"] == EXPECTED_KERNEL
    assert seen["root"] == "ro"
    assert set(seen["writes"].values()) == {"Read-only file system"}, seen["writes"]
    assert any(word.endswith(f"/{NAME}") for word in seen["command"]), "the program is the container's first process"
    assert system.must("exec", pod, "--", "kubectl-tfjob", "--version").startswith("kubectl tfjob ")


def check_account(system: Kubectl, cluster: Cluster, pod: str) -> None:
    """The token in the pod is the account's own, bound to this pod, and lets it do little."""
    token = system.must("exec", pod, "--", "cat", TOKEN)
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert (claims["sub"], claims["kubernetes.io"]["pod"]["name"]) == (ACCOUNT, pod)
    api = cluster.api.as_token(token)
    with pytest.raises(RefusedError, match=f'User "{ACCOUNT}" cannot list resource "secrets"'):
        api.list("/api/v1/secrets")


def check_pod_security(cluster: Cluster) -> None:
    """The namespace takes no pod that asks for more."""
    body = {"metadata": {"name": "root"}, "spec": {"containers": [container()]}}
    with pytest.raises(RefusedError, match='violates PodSecurity "restricted'):
        cluster.api.request("POST", f"/api/v1/namespaces/{SYSTEM}/pods", body, query={"dryRun": "All"})


def run_with_server(jobs: Jobs, kubectl: Kubectl) -> None:
    """A job whose master ends when it has reached a standard parameter server, the program of which is a ConfigMap."""
    jobs.submit(tfjob(master(template=template(REACH_SERVER)), parameter_servers(1), name="first", tfImage=TENSORFLOW))
    eventually(lambda: jobs.phase("first") in ("Done", "Failed"), PATIENCE_SECONDS)
    status = jobs.status("first")
    assert (status["phase"], status["state"], status.get("restarts", 0)) == ("Done", "Succeeded", 0), status
    assert kubectl.must("logs", "-l", "tf_job_name=first,job_type=MASTER") == "reached\n"
    told = eventually(lambda: "Done" in reasons(jobs, "first") and reasons(jobs, "first"))
    assert not {"Failed", "FailedCreate", "Restarted"} & set(told), told


def reasons(jobs: Jobs, name: str) -> list[str]:
    """Of the events about that job, by the Deployment's controller."""
    about = [event for event in jobs.events() if event["regarding"].get("name") == name]
    return [event["reason"] for event in about if event["regarding"]["kind"] == "TFJob"]


def submit_errand(jobs: Jobs, kubectl: Kubectl, leader_node: str) -> None:
    """A job whose worker waits on the leader's node for ever, and which ends when that starts again; now it waits."""
    (other,) = {"node-1", "node-2"} - {leader_node}
    chief = template(ERRAND, nodeSelector={"kubernetes.io/hostname": other})
    worker = template(ERRAND, env={"TROUBLE": "wait"}, affinity=preferring(leader_node))
    jobs.submit(tfjob(master(template=chief), workers(1, template=worker), name="errand"))
    eventually(lambda: "start worker-0 1" in chief_log(kubectl), 90)
    assert jobs.await_phase("Running", "errand")["state"] == "Running"
    pods = [pod for pod in jobs.children("pods").values() if pod["metadata"]["labels"]["tf_job_name"] == "errand"]
    assert {pod["metadata"]["labels"]["job_type"]: pod["spec"]["nodeName"] for pod in pods} == {
        "MASTER": other,
        "WORKER": leader_node,
    }


def chief_log(kubectl: Kubectl) -> str:
    """Who has started there, and for which time; empty before there is a container."""
    return kubectl.run("logs", "-l", "tf_job_name=errand,job_type=MASTER", "--tail=-1").out


def check_takeover(system: Kubectl, cluster: Cluster, pods: dict[str, str], before: Object) -> None:
    """The other one leads, once the lease that nobody renewed is over, and says so."""
    (other,) = pods.keys() - {before["holderIdentity"].partition("_")[0]}
    eventually(lambda: holder(cluster) == other)
    assert cluster.api.get(LEASE)["spec"]["leaseTransitions"] == before["leaseTransitions"] + 1
    eventually(lambda: leading(system, [other]) == {other: 1.0})


def check_errand(jobs: Jobs, kubectl: Kubectl) -> None:
    """The new leader saw the worker to its second start and the job to its end."""
    given_up_seconds = nodes_module.GRACE_SECONDS + nodes_module.TOLERATION_SECONDS
    status = jobs.await_phase("Done", "errand", timeout=given_up_seconds + PATIENCE_SECONDS)
    assert (status["state"], status["restarts"]) == ("Succeeded", 1), status
    assert "start worker-0 2" in chief_log(kubectl)
    told = eventually(lambda: "Done" in reasons(jobs, "errand") and reasons(jobs, "errand"))
    assert (told.count("Restarted"), told.count("Done"), told.count("Failed")) == (1, 1, 0), told
