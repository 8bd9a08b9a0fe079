"""Kubeflow Trainer's own TrainJobs, with upstream's CRDs, runtimes and examples, on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helpers.cluster import Cluster, set_pod_terminated
from helpers.kubectl import Kubectl
from helpers.kubeflowjobs import GROUP_PATH, KubeflowCluster, KubeflowTrial, kubeflow_cluster
from helpers.trainjobs import env_of
from localcluster.kubeflowtrainer import kubeflow_manifests

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def kubeflow(control_plane: Cluster, administrator: Kubectl) -> Iterator[KubeflowCluster]:
    with kubeflow_cluster(control_plane) as cluster:
        yield cluster


def end(trial: KubeflowTrial, pods: list[Any], exit_code: int = 0) -> None:
    for pod in pods:
        set_pod_terminated(trial.jobs.api, trial.namespace, pod["metadata"]["name"], exit_code, container="node")


def test_a_torch_job_with_upstreams_runtime_runs_and_completes(kubeflow: KubeflowCluster) -> None:
    trial = kubeflow.submit(trainer={"numNodes": 2, "command": ["torchrun", "train.py"]})
    name = trial.name
    job = trial.await_job()
    assert (job["spec"]["completionMode"], job["spec"]["completions"], job["spec"]["parallelism"]) == ("Indexed", 2, 2)
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob", name)
    labels = job["metadata"]["labels"]
    assert labels["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer"
    assert (labels["jobset.sigs.k8s.io/jobset-name"], labels["jobset.sigs.k8s.io/replicatedjob-name"]) == (name, "node")
    pods = trial.await_pods(2)
    for pod in pods:
        index = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
        assert pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == name
        assert pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] == "node"
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (f"{name}-node-0-{index}", name)
        env = env_of(pod)
        assert env["PET_MASTER_ADDR"] == f"{name}-node-0-0.{name}"
        assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"], env["PET_MASTER_PORT"]) == ("2", "1", "29500")
    (service,) = trial.children("services").values()
    assert (service["metadata"]["name"], service["spec"]["clusterIP"]) == (name, "None")
    trial.eventually(lambda: trial.job_status().get("ready") == 1)
    assert trial.job_status() == {
        "name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0,
    }  # fmt: skip
    # The SDK takes any condition as a sign that the job does not run.
    assert trial.conditions() == {}
    end(trial, pods)
    complete = trial.await_condition("Complete")
    assert (complete["reason"], complete["message"]) == ("AllJobsCompleted", "jobset completed successfully")
    assert trial.job_status()["succeeded"] == 1


@pytest.mark.parametrize("example", ["02-runtime-patches", "05-multi-step"])
def test_upstreams_examples_run_unmodified(kubeflow: KubeflowCluster, example: str) -> None:
    name = ""
    for each in kubeflow_manifests(f"examples/yaml/{example}.yaml"):
        plural = f"{each['kind'].lower()}s"
        kubeflow.api.create(f"{GROUP_PATH}/namespaces/{kubeflow.namespace}/{plural}", each)
        name = each["metadata"]["name"]
    trial = KubeflowTrial(kubeflow, name)
    found = trial.eventually(lambda: trial.children("jobs"))
    assert trial.conditions() == {}
    if example == "02-runtime-patches":
        (job,) = found.values()
        pod = job["spec"]["template"]["spec"]
        assert (pod["serviceAccountName"], pod["nodeSelector"]) == ("training-sa", {"node-type": "training"})
        assert job["metadata"]["labels"]["team"] == "ml-platform"
    kubeflow.api.delete(f"{trial.path}/{name}")
