"""The rules of kinds/trainjob/runtimes.py: which runtime and which framework a job uses."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from helpers.clusterinmemory import START
from helpers.trainmanifests import Manifest, role_template, runtime, trainjob
from helpers.trainworld import decoded_train
from tfjob_controller.api.trainjob.runtime import TrainingRuntime
from tfjob_controller.api.trainjob.types import FRAMEWORK_ANNOTATION, TrainJob
from tfjob_controller.controller.kind import RUNTIME_TIMEOUT_SECONDS
from tfjob_controller.jobs.plan.model import UnplannableError
from tfjob_controller.kinds.trainjob.runtimes import ResolvedRuntime, RuntimeResolver
from tfjob_controller.kube.cache.store import Store

TORCHRUN, MPIRUN = ["torchrun", "train.py"], ["mpirun", "train"]
REF = {"name": "mine", "kind": "TrainingRuntime", "apiGroup": "kubeflow.org"}
CLUSTER_REF = {**REF, "kind": "ClusterTrainingRuntime"}


def stored(manifest: Manifest) -> TrainingRuntime:
    given = {**manifest, "metadata": {"uid": "uid-runtime", "resourceVersion": "1", **manifest["metadata"]}}
    return msgspec.convert(given, TrainingRuntime)


def known(*cluster: Manifest, namespaced: tuple[Manifest, ...] = (), namespace: str = "ns") -> RuntimeResolver:
    of_cluster: Store[TrainingRuntime] = Store()
    of_namespace: Store[TrainingRuntime] = Store()
    for each in cluster:
        of_cluster.upsert(stored(each))
    for each in namespaced:
        of_namespace.upsert(stored({**each, "metadata": {**each["metadata"], "namespace": namespace}}))
    return RuntimeResolver(of_namespace, of_cluster)


def annotated(framework: str, **spec: Any) -> TrainJob:
    manifest = trainjob(**spec)
    return decoded_train(
        {**manifest, "metadata": {**manifest["metadata"], "annotations": {FRAMEWORK_ANNOTATION: framework}}}
    )


def job(**spec: Any) -> TrainJob:
    return decoded_train(trainjob(**spec))


def found(runtimes: RuntimeResolver, wanted: TrainJob, after_seconds: float = 0.0) -> ResolvedRuntime:
    return runtimes.resolve(wanted, START + timedelta(seconds=after_seconds))


def refusal(runtimes: RuntimeResolver, wanted: TrainJob, after_seconds: float = 0.0) -> UnplannableError:
    with pytest.raises(UnplannableError) as refused:
        found(runtimes, wanted, after_seconds)
    return refused.value


@pytest.mark.parametrize(
    ("wanted", "framework"),
    [
        pytest.param(job(command=TORCHRUN), "torch", id="the-command-tells"),
        pytest.param(job(framework="jax"), "jax", id="the-job-says"),
        pytest.param(annotated("xgboost"), "xgboost", id="its-annotation-says"),
        pytest.param(job(command=TORCHRUN, framework="jax"), "torch", id="the-command-before-the-job"),
        pytest.param(job(), "plain", id="nobody-says"),
    ],
)
def test_without_a_runtime_the_framework_follows_from_the_command_or_the_job(wanted: TrainJob, framework: str) -> None:
    assert found(known(), wanted).framework.name == framework


def test_the_built_in_runtime_is_taken_if_the_cluster_has_it_and_done_without_if_not() -> None:
    wanted = job(command=TORCHRUN)
    assert found(known(), wanted).spec is None
    theirs = runtime("torch-distributed", framework="torch", numNodes=7)
    spec = found(known(theirs), wanted).spec
    assert spec is not None
    assert spec.num_nodes == 7


def test_a_built_in_runtime_that_somebody_spoiled_is_done_without() -> None:
    spoiled = runtime("torch-distributed", templates={"nobody": role_template()})
    assert found(known(spoiled), job(command=TORCHRUN)).spec is None


@pytest.mark.parametrize("ref", [REF, CLUSTER_REF], ids=["of-the-namespace", "of-the-cluster"])
def test_a_runtime_that_a_job_names_is_looked_for_where_it_says(ref: dict[str, str]) -> None:
    runtimes = known(
        runtime("mine", numNodes=1), namespaced=(runtime("mine", namespaced=True, numNodes=2),), namespace="ns"
    )
    spec = found(runtimes, job(runtimeRef=ref)).spec
    assert spec is not None
    assert spec.num_nodes == (2 if ref is REF else 1)


def test_a_runtime_of_another_namespace_is_not_found() -> None:
    runtimes = known(namespaced=(runtime("mine", namespaced=True),), namespace="others")
    assert str(refusal(runtimes, job(runtimeRef=REF))).startswith("spec.runtimeRef: there is no TrainingRuntime mine:")


@pytest.mark.parametrize(
    ("seconds", "left"),
    [
        (0.0, RUNTIME_TIMEOUT_SECONDS),
        (RUNTIME_TIMEOUT_SECONDS - 5, 5.0),
        (RUNTIME_TIMEOUT_SECONDS, 0.0),
    ],
)
def test_a_runtime_that_is_not_there_is_waited_for_from_the_jobs_creation_on(seconds: float, left: float) -> None:
    assert refusal(known(), job(runtimeRef=REF), seconds).seconds_left == left


def test_a_job_without_its_runtime_fails_with_the_remedy_after_the_timeout() -> None:
    words = "spec.runtimeRef: there is no ClusterTrainingRuntime mine: create it"
    runtimes, wanted = known(), job(runtimeRef=CLUSTER_REF)
    assert str(refusal(runtimes, wanted)) == words
    failed = refusal(runtimes, wanted, RUNTIME_TIMEOUT_SECONDS)
    assert str(failed) == f"{words} or choose another one, then delete the job and submit it again"


@pytest.mark.parametrize(
    ("of_runtime", "of_job", "framework"),
    [
        pytest.param("torch", {}, "torch", id="the-runtimes"),
        pytest.param("torch", {"command": MPIRUN}, "torch", id="the-runtime-before-the-command"),
        pytest.param("", {"framework": "jax"}, "jax", id="the-jobs"),
        pytest.param("", {"command": MPIRUN}, "mpi", id="the-commands"),
        pytest.param("", {}, "plain", id="nobodys"),
    ],
)
def test_with_a_runtime_the_framework_is_the_runtimes_or_else_as_without(
    of_runtime: str, of_job: dict[str, Any], framework: str
) -> None:
    theirs = runtime("mine", **({"framework": of_runtime} if of_runtime else {}))
    assert found(known(theirs), job(runtimeRef=CLUSTER_REF, **of_job)).framework.name == framework


@pytest.mark.parametrize(
    ("theirs", "mine", "words"),
    [
        pytest.param(
            {"framework": "torch"},
            {"framework": "jax"},
            "spec.framework: is jax, but ClusterTrainingRuntime mine is for torch: leave it out",
            id="two-frameworks",
        ),
        pytest.param(
            {"framework": "absent"},
            {},
            "spec.framework: there is no framework 'absent': it must be one of ",
            id="a-framework-of-the-runtime-that-there-is-not",
        ),
        pytest.param(
            {"templates": {"node": {"spec": {"containers": []}}}},
            {},
            "ClusterTrainingRuntime mine: spec.templates: must have a container named node",
            id="a-spoiled-runtime",
        ),
        pytest.param({}, {"nodes": None}, "spec.numNodes: is required", id="nobody-says-how-many"),
        pytest.param({}, {"trainer": {"image": None}}, "spec.trainer.image: is required", id="nobody-says-which-image"),
    ],
)
def test_what_does_not_suit_is_refused_without_waiting(
    theirs: dict[str, Any], mine: dict[str, Any], words: str
) -> None:
    refused = refusal(known(runtime("mine", **theirs)), job(runtimeRef=CLUSTER_REF, **mine))
    assert str(refused).startswith(words)
    assert refused.seconds_left == 0


@pytest.mark.parametrize(
    ("mine", "words"),
    [
        pytest.param({"nodes": None}, "spec.numNodes: is required", id="nodes"),
        pytest.param({"trainer": {"image": None}}, "spec.trainer.image: is required", id="image"),
        pytest.param({"framework": "absent"}, "spec.framework: there is no framework 'absent'", id="framework"),
    ],
)
def test_a_job_without_a_runtime_must_say_all_itself(mine: dict[str, Any], words: str) -> None:
    assert str(refusal(known(), job(**mine))).startswith(words)


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        pytest.param(job(runtimeRef=REF), "mine", id="named"),
        pytest.param(job(command=TORCHRUN), "torch-distributed", id="by-the-command"),
        pytest.param(job(), "plain", id="by-default"),
        pytest.param(job(framework="absent"), "", id="of-no-framework"),
    ],
)
def test_errors_name_a_runtime_that_does_not_exist(wanted: TrainJob, name: str) -> None:
    assert known().name_for(wanted) == name


def test_only_jobs_of_torch_are_elastic() -> None:
    bounds = {"minNodes": 1, "maxNodes": 4}
    assert found(known(), job(command=TORCHRUN, elasticPolicy=bounds)).framework.name == "torch"
    words = "spec: elasticPolicy is for framework torch only, because programs of other frameworks must know all nodes"
    error = refusal(known(), job(command=MPIRUN, elasticPolicy=bounds))
    assert str(error).startswith(words)
    assert error.seconds_left == 0


def test_a_runtime_of_another_framework_has_no_elastic_jobs() -> None:
    runtimes = known(namespaced=(runtime("mine", namespaced=True, framework="jax"),))
    elastic = job(runtimeRef=REF, elasticPolicy={"minNodes": 1, "maxNodes": 4})
    assert "elasticPolicy is for framework torch only" in str(refusal(runtimes, elastic))
