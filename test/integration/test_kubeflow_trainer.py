"""Kubeflow Trainer's own TrainJobs, with upstream's CRDs, runtimes and examples, on a real API server."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.cluster import Cluster, set_pod_terminated
from helpers.kubectl import Kubectl
from helpers.kubeflowjobs import GROUP_PATH, RUNTIMES_PATH, KubeflowCluster, KubeflowTrial, kubeflow_cluster
from helpers.kubeflowmanifests import kubeflow_runtime, replicated_job
from helpers.poll import eventually
from helpers.trainjobs import env_of
from localcluster.kubeflowtrainer import kubeflow_manifests, kubeflow_runtimes

pytestmark = pytest.mark.cluster

TORCHRUN: dict[str, Any] = {"numNodes": 2, "command": ["torchrun", "train.py"]}
JOBSET = "jobset.sigs.k8s.io/jobset-name"


@pytest.fixture(scope="module")
def kubeflow(control_plane: Cluster, administrator: Kubectl) -> Iterator[KubeflowCluster]:
    with kubeflow_cluster(control_plane) as cluster:
        yield cluster


def end(trial: KubeflowTrial, pods: list[Any], exit_code: int = 0) -> None:
    for pod in pods:
        set_pod_terminated(
            trial.cluster.api, trial.cluster.namespace, pod["metadata"]["name"], exit_code, container="node"
        )


def refused(trial: KubeflowTrial) -> str:
    """Returns why the job was refused; it has no Job."""
    failed = trial.await_condition("Failed")
    assert trial.children("jobs") == {}
    return f"{failed['reason']}: {failed['message']}"


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


def test_a_job_whose_node_fails_has_failed_and_says_why(kubeflow: KubeflowCluster) -> None:
    name = f"no-retries-{secrets.token_hex(4)}"
    kubeflow.api.create(RUNTIMES_PATH, kubeflow_runtime(replicated_job(job={"backoffLimit": 0}), name=name))
    trial = kubeflow.submit(name, trainer=TORCHRUN)
    pods = trial.await_pods(2)
    end(trial, pods[:1], 3)
    failed = trial.await_condition("Failed")
    assert failed["reason"] == "FailedJobs"
    assert "exit code 3" in failed["message"]
    assert trial.job_status()["failed"] == 1
    kubeflow.api.delete(f"{RUNTIMES_PATH}/{name}")


def test_an_error_restarts_all_nodes(kubeflow: KubeflowCluster) -> None:
    trial = kubeflow.submit(trainer=TORCHRUN)
    before = trial.await_job()["metadata"]["uid"]
    end(trial, trial.await_pods(2)[:1], 1)
    trial.eventually(lambda: {each["metadata"]["uid"] for each in trial.children("jobs").values()} - {before})
    end(trial, trial.await_pods(2))
    trial.await_condition("Complete")


def test_a_suspended_job_has_no_pods_and_goes_on_when_it_is_resumed(kubeflow: KubeflowCluster) -> None:
    trial = kubeflow.submit(trainer=TORCHRUN, suspend=True)
    suspended = trial.await_condition("Suspended")
    assert (suspended["reason"], suspended["message"]) == ("Suspended", "TrainJob is suspended")
    assert trial.children("jobs") == {}
    trial.change(suspend=False)
    trial.await_pods(2)
    resumed = trial.await_condition("Suspended", "False")
    assert (resumed["reason"], resumed["message"]) == ("Resumed", "TrainJob is resumed")
    trial.change(suspend=True)
    trial.await_condition("Suspended")
    trial.eventually(lambda: not trial.children("pods"))
    assert trial.job_status()["suspended"] == 1
    old = {job["metadata"]["uid"] for job in trial.children("jobs").values()}
    # Its Jobs are created from what the spec says when it is resumed. That is no restart.
    trial.change(suspend=False)
    trial.eventually(
        lambda: trial.children("jobs") and not old & {job["metadata"]["uid"] for job in trial.children("jobs").values()}
    )
    end(trial, trial.await_pods(2))
    assert trial.await_job()["metadata"]["labels"]["kubeflow.org/generation"] == "0"
    trial.await_condition("Complete")


def test_a_job_that_takes_too_long_fails(kubeflow: KubeflowCluster) -> None:
    trial = kubeflow.submit(trainer=TORCHRUN, activeDeadlineSeconds=1)
    failed = trial.await_condition("Failed")
    assert (failed["reason"], failed["message"]) == ("DeadlineExceeded", "TrainJob exceeded its active deadline")


def test_an_mpi_job_runs_with_upstreams_runtime_until_its_launcher_ends(kubeflow: KubeflowCluster) -> None:
    trial = kubeflow.submit("deepspeed-distributed", trainer={"numNodes": 3, "command": ["mpirun", "train"]})
    pods = trial.await_pods(3)
    roles = [each["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] for each in pods]
    assert sorted(roles) == ["launcher", "node", "node"]
    (launcher,) = [each for each in pods if "launcher" in each["metadata"]["name"]]
    assert launcher["spec"]["hostname"] == f"{trial.name}-launcher-0-0"
    # The SDK reads this label of the launcher's pod as well.
    assert launcher["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0"
    (hostfile,) = trial.children("configmaps").values()
    assert hostfile["data"]["hostfile"].splitlines() == [
        f"{trial.name}-{host}.{trial.name} slots=1" for host in ("node-0-0", "node-0-1", "launcher-0-0")
    ]
    (keys,) = trial.children("secrets")
    assert keys == f"{trial.name}-mpi-ssh-auth"
    end(trial, [launcher])
    trial.await_condition("Complete")
    trial.eventually(lambda: trial.job_status("launcher").get("succeeded") == 1)


def test_a_job_of_several_steps_runs_one_after_another(kubeflow: KubeflowCluster) -> None:
    dataset = {"storageUri": "hf://tatsu-lab/alpaca"}
    trial = kubeflow.submit("torch-distributed-with-cache", trainer=TORCHRUN, initializer={"dataset": dataset})
    trial.await_job("dataset-initializer")
    assert f"{trial.name}-node-0" not in trial.children("jobs")
    (pod,) = trial.await_pods(1)
    # Upstream's runtime reads the name of the job from it.
    assert pod["metadata"]["labels"][JOBSET] == trial.name
    env = pod["spec"]["containers"][0]["env"]
    assert {"name": "STORAGE_URI", "value": dataset["storageUri"]} in env
    set_pod_terminated(kubeflow.api, kubeflow.namespace, pod["metadata"]["name"], container="dataset-initializer")
    trial.await_job()
    # The status is written after the Jobs of the next step are created.
    trial.eventually(lambda: trial.job_status("dataset-initializer")["succeeded"] == 1)


@pytest.mark.parametrize("runtime", [each["metadata"]["name"] for each in kubeflow_runtimes()])
def test_every_runtime_that_upstream_publishes_gets_its_jobs(kubeflow: KubeflowCluster, runtime: str) -> None:
    tune = {"command": ["tune", "run"], "resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}}}
    trial = kubeflow.submit(runtime, trainer=tune if runtime.startswith("torchtune") else {"command": ["x"]})
    # Two initializers, or launcher and nodes, are created at the same moment, and seen one after the other.
    count = 2 if runtime.startswith(("torchtune", "deepspeed", "mlx")) else 1
    first = trial.eventually(lambda: len(found := trial.children("jobs")) == count and found)
    for job in first.values():
        assert job["metadata"]["labels"][JOBSET] == trial.name
    if runtime.startswith("torchtune"):
        path = f"/api/v1/namespaces/{kubeflow.namespace}/persistentvolumeclaims"
        claim = trial.eventually(lambda: kubeflow.api.find(f"{path}/initializer-{trial.name}"))
        assert claim["spec"]["resources"]["requests"]["storage"] == "20Gi"
    assert trial.conditions() == {}


@pytest.mark.parametrize("example", ["01-multi-node", "02-runtime-patches", "05-multi-step"])
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


# Refusals


def test_a_job_without_its_runtime_fails_after_a_while(kubeflow: KubeflowCluster) -> None:
    words = refused(kubeflow.submit("no-such-runtime"))
    assert words.startswith("JobsBuildFailed: ")
    assert "spec.runtimeRef: there is no ClusterTrainingRuntime no-such-runtime" in words


def test_a_job_that_is_created_before_its_runtime_starts_when_that_appears(kubeflow: KubeflowCluster) -> None:
    name = f"late-{secrets.token_hex(4)}"
    trial = kubeflow.submit(name, trainer=TORCHRUN)
    kubeflow.api.create(RUNTIMES_PATH, kubeflow_runtime(name=name))
    trial.await_job()
    kubeflow.api.delete(f"{RUNTIMES_PATH}/{name}")


def test_what_is_no_runtime_gets_upstreams_reason(kubeflow: KubeflowCluster) -> None:
    words = refused(kubeflow.submit("x", kind="ConfigMap"))
    assert words == "TrainingRuntimeNotSupported: unsupported runtime: ConfigMap.trainer.kubeflow.org"


@pytest.mark.parametrize(
    ("runtime", "field"),
    [
        ({"policy": {"numNodes": 1, "flux": {}}}, "spec.mlPolicy.flux: "),
        ({"podGroupPolicy": {"volcano": {}}}, "spec.podGroupPolicy.volcano: "),
        ({"job_set": {"startupPolicy": {"startupPolicyOrder": "InOrder"}}}, "spec.template.spec.startupPolicy: "),
    ],
)
def test_what_is_not_supported_is_refused_by_name(kubeflow: KubeflowCluster, runtime: Any, field: str) -> None:
    name = f"refused-{secrets.token_hex(4)}"
    kubeflow.api.create(RUNTIMES_PATH, kubeflow_runtime(name=name, **runtime))
    assert field in refused(kubeflow.submit(name))
    kubeflow.api.delete(f"{RUNTIMES_PATH}/{name}")


def test_a_job_of_another_controller_is_left_alone(kubeflow: KubeflowCluster) -> None:
    other = kubeflow.submit(managedBy="kueue.x-k8s.io/multikueue")
    kubeflow.submit(trainer=TORCHRUN).await_job()
    assert (other.children("jobs"), other.status()) == ({}, {})


def test_a_deleted_job_takes_its_children_with_it(kubeflow: KubeflowCluster) -> None:
    trial = kubeflow.submit(trainer=TORCHRUN)
    trial.await_pods(2)
    kubeflow.api.delete(f"{trial.path}/{trial.name}")
    eventually(lambda: not any(trial.children(plural) for plural in ("pods", "jobs", "services")), 60, 0.1)
