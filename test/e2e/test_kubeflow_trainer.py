"""TrainJobs of Kubeflow Trainer's own API on real nodes: processes find each other by what upstream promises them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.controller import running_controller
from helpers.kubectl import Kubectl
from helpers.kubeflowjobs import GROUP_PATH, RUNTIMES_PATH, local_torch_runtime
from helpers.kubeflowmanifests import kubeflow_runtime, kubeflow_trainjob, replicated_job
from helpers.poll import eventually
from helpers.realtrainjobs import PATIENCE_SECONDS
from localcluster import images
from localcluster import nodes as nodes_module
from localcluster.crds import install_crds
from localcluster.kubeflowtrainer import install_kubeflow_crds

pytestmark = pytest.mark.nodes

Object = dict[str, Any]

# What upstream's example runtime-patches does: the processes add up their ranks.
PROGRAM = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank()])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: the sum is {int(total)}")
dist.destroy_process_group()
"""
# What upstream's images for MPI have: a user, and a client and server of SSH for that user.
USER_FILES = {
    "passwd": (
        "root:x:0:0:root:/root:/bin/sh\n"
        "sshd:x:100:65534::/run/sshd:/bin/sh\n"
        "mpiuser:x:1000:1000::/home/mpiuser:/bin/sh\n"
    ),
    "client": "Host *\n  Port 2222\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
    "server": "Port 2222\nPidFile /tmp/sshd.pid\nHostKey /home/mpiuser/.ssh/id_rsa\nStrictModes no\nUsePAM no\n",
}
FILES = {"passwd": "/etc/passwd", "client": "/etc/ssh/ssh_config", "server": "/home/mpiuser/.sshd_config"}


@dataclass(frozen=True, slots=True)
class KubeflowJobs:
    """The TrainJobs of one namespace."""

    cluster: Cluster
    namespace: str
    kubectl: Kubectl

    def run(self, name: str, runtime: str, **spec: Any) -> Object:
        """Returns the status of a job that has ended."""
        path = f"{GROUP_PATH}/namespaces/{self.namespace}/trainjobs"
        self.cluster.api.create(path, kubeflow_trainjob(name, runtime, **spec))

        def status() -> Object:
            found: Object = self.cluster.api.get(f"{path}/{name}").get("status", {})
            return found

        try:
            eventually(lambda: status().get("conditions"), PATIENCE_SECONDS)
        except AssertionError:
            raise AssertionError(self._pods()) from None
        return status()

    def _pods(self) -> list[Object]:
        """Returns what the pods wait for, or print, for the message of a test that fails."""
        pods = self.cluster.api.list(f"/api/v1/namespaces/{self.namespace}/pods")
        logs = [self.kubectl.run("logs", each["metadata"]["name"], "--all-containers", "--tail=20") for each in pods]
        return [{"status": each.get("status"), "log": log} for each, log in zip(pods, logs, strict=True)]

    def log(self, name: str, replicated_job: str = "node", index: int = 0) -> str:
        """Returns the log of a pod, which is found as the SDK finds it."""
        labels = {
            "jobset.sigs.k8s.io/jobset-name": name,
            "jobset.sigs.k8s.io/replicatedjob-name": replicated_job,
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        return self.kubectl.must("logs", "-l", selector, "-c", "node", "--tail=-1")


@pytest.fixture
def kubeflow(nodes: Cluster, space: str, kubectl: Kubectl) -> Iterator[KubeflowJobs]:
    """Upstream's CRDs, and a controller that runs them in the test's namespace."""
    if nodes.plane is None:
        pytest.skip("needs images that an existing cluster may not have: unset KUBECONFIG")
    install_crds(nodes.api)
    install_kubeflow_crds(nodes.api)
    with running_controller(nodes.kubeconfig, space, kubeflow_trainer_api=True):
        yield KubeflowJobs(nodes, space, kubectl)


def ended_well(status: Object) -> bool:
    return [each["type"] for each in status["conditions"]] == ["Complete"]


def test_torchrun_finds_its_nodes_with_upstreams_runtime(kubeflow: KubeflowJobs) -> None:
    nodes_module.load_image(kubeflow.cluster.folder, images.TORCH)
    kubeflow.cluster.api.create_if_missing(RUNTIMES_PATH, local_torch_runtime())
    command = ["torchrun", "--no_python", "python3", "-c", PROGRAM]
    trainer = {"image": images.TORCH, "numNodes": 2, "numProcPerNode": 1, "command": command}
    status = kubeflow.run("torch", "torch-distributed", trainer=trainer)
    logs = [kubeflow.log("torch", index=index) for index in (0, 1)]
    assert ended_well(status), (status, logs)
    assert sorted(re.findall(r"rank (\d) of 2: the sum is 1", "".join(logs))) == ["0", "1"]


def test_mpirun_starts_processes_on_the_launcher_and_the_nodes(kubeflow: KubeflowJobs) -> None:
    """The runtime has the shape of upstream's deepspeed-distributed: another user than root, and its own sshd."""
    nodes_module.load_image(kubeflow.cluster.folder, images.MPI)
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "image"}, "data": USER_FILES}
    kubeflow.cluster.api.create(f"/api/v1/namespaces/{kubeflow.namespace}/configmaps", config_map)
    mounts = [{"name": "image", "mountPath": path, "subPath": name} for name, path in FILES.items()]
    container = {
        "image": images.MPI,
        "imagePullPolicy": "Never",
        "volumeMounts": mounts,
        "securityContext": {"runAsUser": 1000},
    }
    sshd = {"command": ["/usr/sbin/sshd"], "args": ["-De", "-f", FILES["server"]]}
    node = replicated_job("node", ancestor="", container={**container, **sshd})
    launcher = replicated_job("launcher", container=container, dependsOn=[{"name": "node", "status": "Ready"}])
    for each in (node, launcher):
        each["template"]["spec"]["template"]["spec"] |= {
            "securityContext": {"fsGroup": 1000},
            "volumes": [{"name": "image", "configMap": {"name": "image"}}],
        }
    policy = {"numNodes": 1, "mpi": {"sshAuthMountPath": "/home/mpiuser/.ssh", "runLauncherAsNode": True}}
    job_set = {"successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]}}
    runtime = kubeflow_runtime(node, launcher, name="mpi-of-a-user", policy=policy, job_set=job_set)
    kubeflow.cluster.api.create_if_missing(RUNTIMES_PATH, runtime)
    command = ["mpirun", "-n", "3", "sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK is on $(hostname)"]
    status = kubeflow.run("mpi", "mpi-of-a-user", trainer={"numNodes": 3, "command": command})
    log = kubeflow.log("mpi", "launcher")
    assert ended_well(status), (status, log)
    hosts = dict(re.findall(r"rank (\d) is on ([-a-z0-9]+)", log))
    assert sorted(hosts.values()) == ["mpi-launcher-0-0", "mpi-node-0-0", "mpi-node-0-1"], log


# Ends half a dozen seconds after it is told to.
SLOW_TO_END = "trap 'sleep 6; exit 0' TERM; while true; do sleep 0.2; done"


def test_no_node_runs_beside_the_pod_of_a_job_that_somebody_deleted(kubeflow: KubeflowJobs) -> None:
    api, namespace = kubeflow.cluster.api, kubeflow.namespace
    container = {"image": "localhost/base", "imagePullPolicy": "Never", "command": ["sh", "-c", SLOW_TO_END]}
    runtime = kubeflow_runtime(replicated_job(container=container), name="slow-to-end")
    api.create_if_missing(RUNTIMES_PATH, runtime)
    api.create(f"{GROUP_PATH}/namespaces/{namespace}/trainjobs", kubeflow_trainjob("slow", "slow-to-end"))
    (first,) = eventually(lambda: running_pods(kubeflow), PATIENCE_SECONDS)
    api.delete(f"/apis/batch/v1/namespaces/{namespace}/jobs/slow-node-0", propagationPolicy="Background")

    def is_replaced() -> bool:
        running = running_pods(kubeflow)
        assert len(running) <= 1
        return bool(running) and running != {first}

    eventually(is_replaced, PATIENCE_SECONDS)


def running_pods(kubeflow: KubeflowJobs) -> set[str]:
    """Returns the names of pods of which a container runs."""
    pods = kubeflow.cluster.api.list(f"/api/v1/namespaces/{kubeflow.namespace}/pods")
    statuses = {each["metadata"]["name"]: each.get("status", {}).get("containerStatuses", ()) for each in pods}
    return {name for name, containers in statuses.items() if any("running" in each["state"] for each in containers)}
