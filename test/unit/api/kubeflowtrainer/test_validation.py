"""What is refused in TrainJobs and runtimes of Kubeflow Trainer, and with which sentence."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.kubeflowmanifests import kubeflow_runtime, kubeflow_trainjob, replicated_job
from helpers.kubeflowworld import decoded_kubeflow, decoded_runtime
from tfjob_controller.api.kubeflowtrainer.types import MAX_NODES
from tfjob_controller.api.kubeflowtrainer.validation import (
    MAX_JOBS,
    unsupported_runtime,
    validate,
    validate_runtime,
)


def problem_of(**spec: Any) -> str | None:
    return validate(decoded_kubeflow(kubeflow_trainjob(**spec)))


def runtime_problem(*jobs: Any, **given: Any) -> str:
    return validate_runtime(decoded_runtime(kubeflow_runtime(*jobs, **given))) or ""


def test_a_plain_job_and_a_plain_runtime_are_valid() -> None:
    assert problem_of(trainer={"numNodes": 2}) is None
    assert runtime_problem() == ""


@pytest.mark.parametrize(
    ("trainer", "words"),
    [
        ({"numNodes": 0}, f"spec.trainer.numNodes: must be from 1 to {MAX_NODES}, is 0"),
        ({"numNodes": MAX_NODES + 1}, f"spec.trainer.numNodes: must be from 1 to {MAX_NODES}"),
        ({"numProcPerNode": 0}, "spec.trainer.numProcPerNode: must be auto, cpu, gpu or a number"),
        ({"env": [{"value": "x"}]}, "spec.trainer.env[0].name: is required"),
        (
            {"resourcesPerNode": {"limits": {"cpu": "much"}}},
            "spec.trainer.resourcesPerNode.limits.cpu: must be a quantity",
        ),
        (
            {"resourcesPerNode": {"limits": {"cpu": "-1"}}},
            "spec.trainer.resourcesPerNode.limits.cpu: must be a quantity",
        ),
    ],
)
def test_values_of_the_trainer_that_are_refused(trainer: Any, words: str) -> None:
    assert words in (problem_of(trainer=trainer) or "")


def test_a_field_that_no_release_of_upstream_has_is_refused_by_its_name() -> None:
    assert "contains unknown field elasticPolicy" in (problem_of(elasticPolicy={}) or "")
    assert "contains unknown field parallelism" in (problem_of(trainer={"parallelism": 3}) or "")


@pytest.mark.parametrize("seconds", [-1, 2**31])
def test_times_that_no_calendar_has_are_refused(seconds: int) -> None:
    assert "spec.activeDeadlineSeconds: must be from 1" in (problem_of(activeDeadlineSeconds=seconds) or "")
    assert "ttlSecondsAfterFinished: must be from 0" in runtime_problem(job_set={"ttlSecondsAfterFinished": seconds})
    assert "maxRestarts: must be from 0" in runtime_problem(job_set={"failurePolicy": {"maxRestarts": seconds}})


def test_lists_that_upstream_leaves_open_are_bounded() -> None:
    override = {"targetJobs": [{"name": "node"}], "spec": {}}
    assert "spec.podTemplateOverrides: must have at most 16" in (problem_of(podTemplateOverrides=[override] * 17) or "")
    jobs = [replicated_job(f"node-{index}") for index in range(MAX_JOBS + 1)]
    assert f"must have at most {MAX_JOBS} entries" in runtime_problem(*jobs)


def test_a_reference_to_what_is_no_runtime_gets_upstreams_words() -> None:
    job = decoded_kubeflow(kubeflow_trainjob(kind="ConfigMap"))
    assert unsupported_runtime(job) == "unsupported runtime: ConfigMap.trainer.kubeflow.org"
    assert validate(job) == unsupported_runtime(job)
    assert unsupported_runtime(decoded_kubeflow(kubeflow_trainjob())) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"policy": {"flux": {}}}, "spec.mlPolicy.flux: Flux is not supported"),
        ({"policy": {"torch": {}, "jax": {}}}, "spec.mlPolicy: torch and jax exclude each other"),
        ({"policy": {"torch": {"elasticPolicy": {"minNodes": 1}}}}, "torch.elasticPolicy: is not supported"),
        ({"policy": {"mpi": {"mpiImplementation": "Intel"}}}, "spec.mlPolicy.mpi.mpiImplementation: must be OpenMPI"),
        ({"policy": {"mpi": {}}}, "with mlPolicy.mpi there must be the jobs launcher and node"),
        ({"podGroupPolicy": {"volcano": {"networkTopology": {}}}}, "spec.podGroupPolicy.volcano.networkTopology: "),
        ({"podGroupPolicy": {"volcano": {}, "coscheduling": {}}}, "volcano and coscheduling exclude each other"),
        ({"job_set": {"network": {"enableDNSHostnames": False}}}, "network.enableDNSHostnames: must not be false"),
        ({"job_set": {"network": {"publishNotReadyAddresses": False}}}, "publishNotReadyAddresses: must not be"),
        ({"job_set": {"successPolicy": {"operator": "Any"}}}, "successPolicy.operator: Any is not supported"),
        ({"job_set": {"failurePolicy": {"rules": [{"name": "r"}]}}}, "failurePolicy.rules: is not supported"),
        ({"job_set": {"failurePolicy": {"restartStrategy": "InPlaceRestart"}}}, "restartStrategy: InPlace"),
        ({"job_set": {"startupPolicy": {"startupPolicyOrder": "InOrder"}}}, "by this controller: use dependsOn"),
        ({"job_set": {"coordinator": {"replicatedJob": "node"}}}, "spec.template.spec.coordinator: is not supported"),
        ({"job_set": {"managedBy": "me.io/me"}}, "spec.template.spec.managedBy: is not supported"),
        ({"job_set": {"suspend": True}}, "spec.template.spec.suspend: is set by each TrainJob"),
        ({"job_set": {"volumeClaimPolicies": [{"retentionPolicy": {"whenDeleted": "Retain"}}]}}, "whenDeleted: Retain"),
        ({"job_set": {"volumeClaimPolicies": [{"templates": [{"spec": {}}]}]}}, "templates[0].metadata.name: is"),
        ({"job_set": {"unheardOf": 1}}, "unknown field unheardOf"),
    ],
)  # fmt: skip
def test_fields_of_a_runtime_that_are_refused(given: Any, words: str) -> None:
    assert words in runtime_problem(**given)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (replicated_job(replicas=2), "replicatedJobs[0].replicas: always must be 1"),
        (replicated_job(groupName="g"), "replicatedJobs[0].groupName: is not supported"),
        (
            replicated_job(ancestor=""),
            "one job must have the label trainer.kubeflow.org/trainjob-ancestor-step: trainer",
        ),
        (replicated_job(container={"name": "main"}), "must contain the required container for the ancestor: trainer"),
        (replicated_job(dependsOn=[{"name": "later"}]), "dependsOn: later must be an earlier job"),
        (replicated_job(job={"podFailurePolicy": {}}), "template.spec.podFailurePolicy: is not supported"),
        (replicated_job(job={"completionMode": "NonIndexed"}), "completionMode: must be Indexed, is NonIndexed"),
        (replicated_job(job={"backoffLimit": -1}), "backoffLimit: must be a number from 0 to 2147483647"),
        (replicated_job(job={"parallelism": MAX_NODES + 1}), "parallelism: must be from 1"),
        (replicated_job(job={"template": {"spec": {"containers": "x"}}}), "containers: expected a list of objects"),
        (replicated_job(job={"template": 3}), "template.spec.template: is required"),
        (replicated_job(job={"template": {"spec": {}}}), "at least one container is required"),
    ],
)
def test_replicated_jobs_that_are_refused(job: Any, words: str) -> None:
    assert words in runtime_problem(job)


def test_only_the_nodes_may_be_several_pods_and_only_a_launcher_may_wait_until_others_are_ready() -> None:
    several = replicated_job("evaluator", ancestor="", job={"parallelism": 2})
    assert "only the training nodes can be several pods" in runtime_problem(replicated_job(), several)
    waits = replicated_job("evaluator", ancestor="", dependsOn=[{"name": "node", "status": "Ready"}])
    assert "the status Ready is supported for launcher and its node only" in runtime_problem(replicated_job(), waits)
    assert "node is listed twice" in runtime_problem(replicated_job(), replicated_job())


def test_the_annotation_for_exclusive_topology_is_refused_wherever_it_is() -> None:
    job = replicated_job()
    annotation = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    job["template"]["metadata"]["annotations"] = annotation
    assert "exclusive-topology: is not supported" in runtime_problem(job)
    runtime = kubeflow_runtime()
    runtime["spec"]["template"]["metadata"] = {"annotations": annotation}
    assert "exclusive-topology: is not supported" in (validate_runtime(decoded_runtime(runtime)) or "")
