"""Which changes of a runtime a TrainJob may make."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.kubeflowmanifests import kubeflow_runtime, kubeflow_trainjob, replicated_job
from helpers.kubeflowworld import decoded_kubeflow, decoded_runtime
from tfjob_controller.api.kubeflowtrainer.patches import patch_problems, pod_patches, set_metadata


def problem_of(**spec: Any) -> str:
    job = decoded_kubeflow(kubeflow_trainjob(**spec))
    assert not job.invalid, job.invalid
    template = replicated_job()
    template["template"]["spec"]["template"]["spec"]["initContainers"] = [{"name": "setup", "image": "i"}]
    jobs = decoded_runtime(kubeflow_runtime(template)).spec.template.spec.replicated_jobs
    return next(patch_problems(job.spec, jobs), "")


def by_patch(**job: Any) -> str:
    replicated = {"name": "node", **job}
    return problem_of(runtimePatches=[patch({"template": {"spec": {"replicatedJobs": [replicated]}}})])


def by_pod_spec(**pod_spec: Any) -> str:
    return by_patch(template={"spec": {"template": {"spec": pod_spec}}})


def patch(spec: Any) -> Any:
    return {"manager": "me.io/me", "trainingRuntimeSpec": spec}


def test_what_upstream_allows_is_allowed() -> None:
    env = {"name": "setup", "env": [{"name": "A", "value": "1"}], "securityContext": {"runAsUser": 1}}
    assert by_pod_spec(containers=[env], nodeSelector={"a": "b"}, terminationGracePeriodSeconds=5) == ""


@pytest.mark.parametrize(
    ("pod_spec", "words"),
    [
        ({"hostNetwork": True}, ".spec.hostNetwork: must not be patched: only serviceAccountName, "),
        ({"nodeSelector": []}, ".spec.nodeSelector: expected another type"),
        ({"tolerations": ["x"]}, ".spec.tolerations: expected a list of objects"),
        ({"volumes": [{}]}, ".spec.volumes: expected a list of objects with a name"),
        ({"containers": [{"name": "none"}]}, "must not have container that doesn't exist in the runtime job node"),
        ({"containers": [{"name": "node", "image": "i"}]}, "containers[0].image: must not be patched"),
        ({"containers": [{"name": "node", "env": [{"name": "A"}]}]}, "must not have envs for the container node"),
        ({"containers": [{"name": "setup", "env": [{}]}]}, ".env: expected a list of objects with a name"),
        ({"containers": [{"name": "setup", "volumeMounts": [{"name": "v"}]}]}, "objects with a mountPath"),
    ],
)
def test_changes_of_pods_that_are_refused(pod_spec: Any, words: str) -> None:
    problem = by_pod_spec(**pod_spec)
    assert problem.startswith("spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template")
    assert words in problem


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"mlPolicy": {}}, "trainingRuntimeSpec.mlPolicy: must not be patched: only template may"),
        ({"template": {"spec": {"network": {}}}}, "template.spec.network: must not be patched"),
        ({"template": {"metadata": {"name": "n"}}}, "template.metadata.name: must not be patched"),
        ({"template": {"metadata": {"labels": []}}}, "template.metadata.labels: expected another type"),
        ({"template": {"spec": {"replicatedJobs": [{}]}}}, "replicatedJobs: expected a list of objects with a name"),
        ({"template": {"spec": {"replicatedJobs": [{"name": "x"}]}}}, "doesn't exist in the runtime job template: x"),
    ],
)
def test_changes_of_the_runtime_that_are_refused(spec: Any, words: str) -> None:
    assert words in problem_of(runtimePatches=[patch(spec)])


@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/manager", "example.com/a/b~c(d)"])
def test_the_manager_of_a_patch_is_a_domain_and_a_path(manager: str) -> None:
    assert problem_of(runtimePatches=[{"manager": manager}]) == ""


@pytest.mark.parametrize(
    "manager",
    ["manager", "/manager", "Kueue.io/a", "a..b/c", "a-/b", "x" * 254 + "/a", ""],
)
def test_a_manager_that_upstream_refuses_is_refused(manager: str) -> None:
    words = problem_of(runtimePatches=[{"manager": "a/b"}, {"manager": manager}])
    assert words.startswith("spec.runtimePatches[1].manager: must be a domain and a path")


def test_changes_of_a_job_may_not_reach_its_spec() -> None:
    assert "template.spec.parallelism: must not be patched" in by_patch(template={"spec": {"parallelism": 3}})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"podTemplateOverrides": [{"targetJobs": [{"name": "x"}]}]}, "spec.podTemplateOverrides[0]: must not have"),
        ({"podSpecOverrides": [{"targetJobs": ["x"]}]}, "spec.podSpecOverrides[0].targetJobs: expected a list"),
        ({"podSpecOverrides": [{"targetJobs": [{"name": "node"}], "hostPID": True}]}, "hostPID: must not be patched"),
    ],
)
def test_the_overrides_of_earlier_releases_have_the_same_rules(spec: Any, words: str) -> None:
    assert words in problem_of(**spec)


def test_labels_of_the_job_set_come_from_the_job_and_its_patches() -> None:
    spec = decoded_kubeflow(
        kubeflow_trainjob(labels={"a": "1"}, runtimePatches=[patch({"template": {"metadata": {"labels": {"b": "2"}}}})])
    ).spec
    assert set_metadata(spec, "labels") == {"a": "1", "b": "2"}
    assert pod_patches(spec) == ()
