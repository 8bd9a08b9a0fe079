"""Upstream's example manifests, as they are: none is refused, and all pods are created."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, new_namespace, own_plane
from helpers.controller import running_controller
from helpers.kubectl import Kubectl
from helpers.policies import attempt
from helpers.poll import eventually, until
from helpers.v1admission import BY_ID
from helpers.v1examples import EXAMPLES, example, examples_folder
from helpers.v1policies import apply_policies, install_own_crds
from helpers.v1world import JOB_NAME_LABEL, job_path
from localcluster.api import Api
from localcluster.crds import documents
from localcluster.programs import Options
from localcluster.trainingoperator import install_v1_crds
from tfjob_controller.api.kubeflowv1.types import MPI_JOB, V1_KINDS

pytestmark = [pytest.mark.cluster, pytest.mark.long]

Object = dict[str, Any]
CRDS: dict[str, Callable[[Api], None]] = {"our CRDs": install_own_crds, "upstream's CRDs": install_v1_crds}


@pytest.fixture(scope="module", params=CRDS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With the policies of the component, and a controller of all namespaces."""
    folder: Path = tmp_path_factory.mktemp("policies")
    with own_plane("v1examples", Options()) as cluster:
        CRDS[request.param](cluster.api)
        apply_policies(Kubectl(cluster.kubeconfig, folder / "cache"), folder)
        invalid = BY_ID["91 no worker"].manifest
        eventually(lambda: attempt(cluster.api, "POST", job_path("default", "PyTorchJob"), invalid, dryRun="All"))
        options: Object = {"kubeflow_v1_api": tuple(V1_KINDS), "trainjobs": False, "gang_scheduling": "off"}
        with running_controller(cluster.kubeconfig, "", **options):
            yield cluster


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_accepted_and_all_its_pods_are_created(cluster: Cluster, name: str) -> None:
    manifest = example(name)
    kind, job = manifest["kind"], manifest["metadata"]["name"]
    # Several examples have the same name.
    namespace = new_namespace(cluster.api)
    cluster.api.create(job_path(namespace, kind), manifest)
    types = manifest["spec"][V1_KINDS[kind].replicas_field]
    count = sum(entry.get("replicas", 1) for entry in types.values())

    def children(plural: str) -> list[Object]:
        return cluster.api.list(f"/api/v1/namespaces/{namespace}/{plural}", f"{JOB_NAME_LABEL}={job}")

    eventually(lambda: len(children("pods")) == count)
    eventually(lambda: len(children("services")) == (0 if kind == MPI_JOB else count))
    status = until(
        lambda: cluster.api.get(job_path(namespace, kind, job)).get("status", {}),
        lambda status: set(status.get("replicaStatuses", ())) == set(types),
    )
    assert [condition["type"] for condition in status["conditions"]] == ["Created"]


def test_all_jobs_of_upstreams_examples_are_tried() -> None:
    folder = examples_folder()
    names = [
        str(path.relative_to(folder).with_suffix(""))
        for path in folder.rglob("*.yaml")
        if any(thing["apiVersion"] == "kubeflow.org/v1" for thing in documents(path.read_text()))
    ]
    assert sorted(names) == sorted(EXAMPLES)
