"""MPIJobs of `kubeflow.org/v1` on real nodes: the launcher starts processes in the workers by `kubectl exec`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.controller import running_controller
from helpers.kubectl import Kubectl
from helpers.poll import PATIENCE_SECONDS, until
from helpers.v1manifests import v1_replicas
from helpers.v1world import job_path, manifest_of
from localcluster import images
from localcluster import nodes as nodes_module
from localcluster.api import Api
from localcluster.crds import documents, install_crd, install_crds
from tfjob_controller.api.kubeflowv1.types import MPI_JOB

pytestmark = pytest.mark.nodes

Object = dict[str, Any]

CRD = Path("manifests/base/crds-kubeflow-v1/kubeflow.org_mpijobs.yaml")
# Each rank learns the host of the other one, and adds what that has sent.
PROGRAM = """
import socket
from mpi4py import MPI
ranks = MPI.COMM_WORLD
hosts, total = ranks.allgather(socket.gethostname()), ranks.allreduce(ranks.rank + 1)
print(f"rank {ranks.rank} of {ranks.size} on {hosts[ranks.rank]}: the sum of {','.join(hosts)} is {total}", flush=True)
"""
COMMAND = ["mpirun", "--allow-run-as-root", "-np", "2", "python3", "-c", PROGRAM]


@pytest.fixture
def jobs(own_nodes: Cluster, space: str) -> Iterator[Api]:
    """A controller of MPIJobs in the test's namespace."""
    install_crds(own_nodes.api)
    for crd in documents(CRD.read_text()):
        install_crd(own_nodes.api, crd)
    for image in (images.MPI, images.KUBECTL_DELIVERY):
        nodes_module.load_image(own_nodes.folder, image)
    options: Object = {"kubeflow_v1_api": (MPI_JOB,), "mpi_kubectl_delivery_image": images.KUBECTL_DELIVERY}
    with running_controller(own_nodes.kubeconfig, space, **options):
        yield own_nodes.api


def replicas(count: int, **container: Any) -> Object:
    entry = v1_replicas(MPI_JOB, count)
    fields = {"image": images.MPI, "imagePullPolicy": "IfNotPresent", **container}
    entry["template"]["spec"] = {"containers": [{"name": "mpi", **fields}], "terminationGracePeriodSeconds": 1}
    return entry


def apart(entry: Object, job: str) -> Object:
    """Returns workers of which each needs a node without another one."""
    labels = {"training.kubeflow.org/job-name": job, "training.kubeflow.org/replica-type": "worker"}
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    entry["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    return entry


def test_mpirun_starts_ranks_on_two_nodes_which_find_each_other(jobs: Api, space: str, kubectl: Kubectl) -> None:
    workers = apart(replicas(2), "ranks")
    types = {"Launcher": replicas(1, command=COMMAND), "Worker": workers}
    manifest = manifest_of(MPI_JOB, types, "ranks", runPolicy={"cleanPodPolicy": "Running"})
    jobs.create(job_path(space, MPI_JOB), manifest)

    def state() -> str:
        status = jobs.get(job_path(space, MPI_JOB, "ranks")).get("status", {})
        return str(next((condition["type"] for condition in reversed(status.get("conditions") or ())), ""))

    until(state, lambda state: state in ("Succeeded", "Failed"), PATIENCE_SECONDS)
    log = kubectl.run("logs", "ranks-launcher", "--all-containers", "--tail=-1").out
    assert state() == "Succeeded", log
    line = r"rank (\d) of 2 on (ranks-worker-\d): the sum of ranks-worker-0,ranks-worker-1 is 3"
    assert sorted(re.findall(line, log)) == [("0", "ranks-worker-0"), ("1", "ranks-worker-1")], log
