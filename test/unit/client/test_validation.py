"""What is said of a TrainJob's runtime before there is a job."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from helpers.scripted import ScriptedRequester
from tfjob_controller.client import Client, ClientError, trainjob
from tfjob_controller.kinds.trainjob.podtemplate import NO_WORKSPACE
from tfjob_controller.kube.errors import ApiError

MISSING = ApiError(404, "NotFound", 'clustertrainingruntimes.kubeflow.org "mine" not found')
NO_SUCH_KIND = ApiError(404, "", "404 page not found")
FORBIDDEN = ApiError(403, "Forbidden", 'User "u" cannot get resource "clustertrainingruntimes"')
RUNTIMES = "/apis/kubeflow.org/v2alpha1/clustertrainingruntimes"
OF_NAMESPACE = "/apis/kubeflow.org/v2alpha1/namespaces/ns/trainingruntimes"
JOBS = "/apis/kubeflow.org/v2alpha1/namespaces/ns/trainjobs"
LISTED_NONE = b'{"metadata": {}, "items": []}'


def runtime(name: str, framework: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"framework": framework} if framework else {}}


def listed(*runtimes: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"metadata": {}, "items": runtimes})


def created(**words: Any) -> bytes:
    manifest = trainjob("a", image="i", nodes=1, **words)
    return msgspec.json.encode({**manifest, "metadata": {"name": "a", "namespace": "ns", "uid": "u"}})


def asked_for(*answers: Any, **words: Any) -> list[str]:
    """Submits the job, and returns the paths of the requests; the last answer is that to the job itself."""
    requester = ScriptedRequester(*answers, created(**words))
    Client.over(requester, "ns").submit(trainjob("a", image="i", nodes=1, **words))
    return requester.paths


def refused(*answers: Any, **words: Any) -> str:
    """Submits the job, and returns what is said; no job is created."""
    requester = ScriptedRequester(*answers)
    with pytest.raises(ClientError) as error:
        Client.over(requester, "ns").submit(trainjob("a", image="i", nodes=1, **words))
    assert JOBS not in requester.paths
    return str(error.value)


def test_a_runtime_that_is_missing_is_named_with_those_that_there_are() -> None:
    assert refused(MISSING, listed(runtime("zoo"), runtime("plain")), runtime="mine") == (
        "spec.runtimeRef: there is no ClusterTrainingRuntime mine: create it first, or choose another one "
        "(the cluster has plain, zoo)"
    )


def test_a_runtime_of_the_namespace_is_looked_for_there() -> None:
    words = refused(MISSING, LISTED_NONE, runtimeRef={"name": "mine", "kind": "TrainingRuntime"})
    assert words == (
        "spec.runtimeRef: there is no TrainingRuntime mine: create it first, or choose another one "
        "(namespace ns has none)"
    )


def test_of_many_runtimes_a_few_are_named() -> None:
    many = listed(*(runtime(f"runtime-{number:02}") for number in range(12)))
    assert refused(MISSING, many, runtime="mine").endswith("runtime-08, runtime-09 and 2 more)")


def test_a_runtime_that_is_missing_is_also_refused_where_the_others_may_not_be_listed() -> None:
    words = "spec.runtimeRef: there is no ClusterTrainingRuntime mine: create it first, or choose another one"
    assert refused(MISSING, FORBIDDEN, runtime="mine") == words


def test_a_job_whose_runtime_is_there_is_created() -> None:
    paths = asked_for(msgspec.json.encode(runtime("mine")), runtime="mine")
    assert paths == [f"{RUNTIMES}/mine", JOBS]


@pytest.mark.parametrize(
    ("words", "paths"),
    [({"runtime": "mine"}, [f"{RUNTIMES}/mine"]), ({"framework": "pytorch"}, [RUNTIMES, OF_NAMESPACE])],
    ids=["runtime", "framework"],
)
def test_a_user_who_may_not_read_runtimes_is_not_refused(words: dict[str, Any], paths: list[str]) -> None:
    assert asked_for(*[FORBIDDEN] * len(paths), **words) == [*paths, JOBS]


@pytest.mark.parametrize("answers", [(FORBIDDEN, LISTED_NONE), (LISTED_NONE, FORBIDDEN)], ids=["cluster", "namespace"])
def test_a_framework_is_not_refused_unless_all_runtimes_were_seen(answers: tuple[Any, ...]) -> None:
    assert asked_for(*answers, framework="pytorch")[-1] == JOBS


def test_a_cluster_that_does_not_know_the_kinds_is_left_to_say_so() -> None:
    assert asked_for(NO_SUCH_KIND, NO_SUCH_KIND, framework="pytorch")[-1] == JOBS
    assert asked_for(NO_SUCH_KIND, runtime="mine")[-1] == JOBS


def test_a_server_that_does_not_respond_is_reported_before_anything_is_created() -> None:
    words = refused(ApiError(0, "Timeout", "no answer"), runtime="mine")
    assert words == "no answer: is the API server of this client up?"


def test_a_framework_that_comes_along_needs_no_runtime() -> None:
    for framework in (None, "torch", "tensorflow", "jax", "xgboost", "mpi", "plain"):
        assert asked_for(framework=framework) == [JOBS]


@pytest.mark.parametrize(
    ("answers", "words", "path"),
    [
        pytest.param([runtime("mine")], {"runtime": "mine"}, f"{RUNTIMES}/mine", id="a runtime that is named"),
        pytest.param([runtime("plain")], {"framework": "plain"}, f"{RUNTIMES}/plain", id="the framework's runtime"),
        pytest.param([MISSING], {"framework": "plain"}, f"{RUNTIMES}/plain", id="a framework without a runtime"),
    ],
)
def test_a_model_that_nothing_could_export_is_refused_and_one_in_a_workspace_or_claim_is_not(
    answers: list[Any], words: dict[str, Any], path: str
) -> None:
    answers = [each if isinstance(each, ApiError) else msgspec.json.encode(each) for each in answers]
    assert refused(*answers, output="s3://models/a", **words) == NO_WORKSPACE
    workspace = {"persistentVolumeClaim": {"claimName": "shared"}}
    with_workspace = msgspec.json.encode({"metadata": {"name": "a"}, "spec": {"workspace": workspace}})
    assert asked_for(with_workspace, output="s3://models/a", **words) == [path, JOBS]
    assert asked_for(FORBIDDEN, output="s3://models/a", **words) == [path, JOBS]
    needed = [with_workspace] if "runtime" in words else []
    assert asked_for(*needed, output="pvc://models/a", **words)[-1] == JOBS


def test_a_framework_that_there_is_not_is_named_with_those_that_there_are() -> None:
    there = listed(runtime("plain", "plain"), runtime("ring-distributed", "ring"), runtime("bare"))
    assert refused(there, LISTED_NONE, framework="pytorch") == (
        "spec.framework: there is no framework pytorch, and no runtime of it: choose one of jax, mpi, plain, ring, "
        "tensorflow, torch, xgboost; if it was added to the controller, create its runtime first (the cluster has "
        "bare, plain, ring-distributed)"
    )


def test_an_added_framework_is_known_by_its_runtime() -> None:
    ring = listed(runtime("ring-distributed", "ring"))
    assert asked_for(ring, LISTED_NONE, framework="ring") == [RUNTIMES, OF_NAMESPACE, JOBS]
    assert asked_for(LISTED_NONE, ring, framework="ring") == [RUNTIMES, OF_NAMESPACE, JOBS]


def test_a_command_that_implies_the_framework_precedes_the_jobs_field() -> None:
    assert asked_for(framework="pytorch", command=["torchrun", "a.py"]) == [JOBS]


def test_the_job_of_another_controller_is_its_own_business() -> None:
    assert asked_for(runtime="mine", managedBy="example.com/other") == [JOBS]
