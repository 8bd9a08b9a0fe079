"""The commands of docs/trainjob-migration.md that replace Kubeflow Trainer's controller by this one, and lead back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.cluster import Cluster, new_namespace, new_token, own_plane, set_pod_terminated, write_kubeconfig
from helpers.controller import running_controller
from helpers.docs import section
from helpers.docsshell import Shell
from helpers.kubectl import Kubectl
from helpers.kubeflowjobs import GROUP_PATH, RUNTIMES_PATH
from helpers.kubeflowmanifests import kubeflow_trainjob
from helpers.poll import eventually
from helpers.renderings import SYSTEM, containers_of
from localcluster.api import Api, RefusedError
from localcluster.fakekubelet import FakeKubelet
from localcluster.kubeflowtrainer import RUNTIMES, install_kubeflow_crds, kubeflow_manifests, kubeflow_module
from localcluster.programs import Options

pytestmark = [pytest.mark.cluster, pytest.mark.long]

PAGE = "docs/trainjob-migration.md"
HEADING = "## From Kubeflow Trainer, and back"
UPSTREAM = "kubeflow-system"
# What the page takes from GitHub.
RELEASE = '"https://github.com/kubeflow/trainer.git/manifests/overlays/manager?ref=v2.3.0"'
# The parts of that overlay, but for JobSet, which this test does without.
PARTS = ("crds", "manager", "rbac", "webhook")
PAST = "2026-01-01T00:00:00Z"
FINISHED = {"type": "Complete", "status": "True", "reason": "AllJobsCompleted", "message": "done",
            "lastTransitionTime": PAST}  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with (
        own_plane("migration", Options()) as cluster,
        FakeKubelet(Api.from_kubeconfig(cluster.own.kubeconfig)),
    ):
        yield cluster


def upstream_overlay(folder: Path) -> Path:
    """Returns a folder with Kubeflow Trainer's overlay `manager`, from its Go module."""
    folder.mkdir()
    base = kubeflow_module() / "manifests" / "base"
    # kustomize accepts no absolute paths, and resolves symbolic links.
    parts = [os.path.relpath((base / part).resolve(), folder.resolve()) for part in PARTS]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": UPSTREAM}}
    (folder / "namespace.yaml").write_text(yaml.safe_dump(namespace))
    overlay = {"namespace": UPSTREAM, "resources": ["namespace.yaml", *parts]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return folder


def has_deployment(api: Api, namespace: str, name: str) -> bool:
    return api.find(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}") is not None


def webhooks(api: Api) -> set[str]:
    group = "/apis/admissionregistration.k8s.io/v1"
    return {
        each["metadata"]["name"]
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        for each in api.list(f"{group}/{kind}")
    }


def is_refused(api: Api, path: str, manifest: dict[str, Any]) -> bool:
    try:
        api.create(f"{path}?dryRun=All", manifest)
    except RefusedError as error:
        return "webhook" in str(error)
    return False


def test_the_commands_of_the_page_replace_kubeflow_trainers_controller_and_lead_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    api, overlay = cluster.api, upstream_overlay(tmp_path / "upstream")
    namespace = new_namespace(api)
    jobs = f"{GROUP_PATH}/namespaces/{namespace}/trainjobs"
    install_kubeflow_crds(api)
    for runtime in kubeflow_manifests(f"{RUNTIMES}/torch_distributed.yaml"):
        api.create(RUNTIMES_PATH, runtime)
    api.create(jobs, kubeflow_trainjob("finished"))
    api.patch(f"{jobs}/finished/status", {"status": {"conditions": [FINISHED]}})
    api.create(jobs, kubeflow_trainjob("waiting", trainer={"numNodes": 2}))
    upstream = Kubectl(cluster.kubeconfig, tmp_path / "cache", UPSTREAM)
    upstream.must("apply", "--server-side", "-k", str(overlay))
    # Nobody answers its webhooks, as after a `kubectl scale --replicas=0` of its controller.
    eventually(lambda: is_refused(api, jobs, kubeflow_trainjob("new")))

    shell, commands = Shell(tmp_path / "reader", cluster.kubeconfig), section(PAGE, HEADING)
    assert len(commands) == 5
    for command in commands[:3]:
        answer = shell.run(command, {})
        assert answer.code == 0, f"{command.place}\n{answer.error}"
    assert not has_deployment(api, UPSTREAM, "kubeflow-trainer-controller-manager")
    assert has_deployment(api, SYSTEM, "tfjob-controller")
    assert webhooks(api) == set()
    (container,) = containers_of(api.get(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/tfjob-controller"))
    assert {"--kubeflow-trainer-api", "--progress-server"} <= set(container["args"])

    # No container runs on these nodes, so the program of the Deployment runs here, with the rights of the overlay.
    kubeconfig = write_kubeconfig(cluster, new_token(api, SYSTEM, "tfjob-controller"), tmp_path / "controller.yaml")
    with running_controller(kubeconfig, namespace, kubeflow_trainer_api=True):
        api.create(jobs, kubeflow_trainjob("new"))
        for name, nodes in (("waiting", 2), ("new", 1)):
            for pod in eventually(lambda name=name, nodes=nodes: running_pods(api, namespace, name, nodes), 120):
                set_pod_terminated(api, namespace, pod, 0, container="node")
            eventually(lambda name=name: is_complete(api.get(f"{jobs}/{name}")), 120)
        api.create(jobs, kubeflow_trainjob("suspended", suspend=True))
        eventually(lambda: api.get(f"{jobs}/suspended").get("status"), 120)
    before = {each["metadata"]["name"]: each for each in api.list(jobs)}
    children = api.list(f"/apis/batch/v1/namespaces/{namespace}/jobs")
    assert {each["metadata"]["labels"]["train_job_name"] for each in children} == {"waiting", "new"}

    for command in commands[3:]:
        answer = shell.run(command, {RELEASE: str(overlay)})
        assert answer.code == 0, f"{command.place}\n{answer.error}"
    assert has_deployment(api, UPSTREAM, "kubeflow-trainer-controller-manager")
    assert webhooks(api) == {"defaulter.trainer.kubeflow.org", "validator.trainer.kubeflow.org"}
    assert api.find(f"/api/v1/namespaces/{SYSTEM}") is None
    assert {each["metadata"]["name"]: each for each in api.list(jobs)} == before
    assert set(before) == {"finished", "waiting", "new", "suspended"}


def running_pods(api: Api, namespace: str, job: str, count: int) -> list[str]:
    """Returns the names of the job's pods once that many run."""
    pods = api.list(f"/api/v1/namespaces/{namespace}/pods", f"train_job_name={job}")
    runs = [each["metadata"]["name"] for each in pods if each.get("status", {}).get("phase") == "Running"]
    return runs if len(runs) == count else []


def is_complete(job: dict[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Complete", "True") for each in conditions)
