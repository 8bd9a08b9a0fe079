"""The jobs and runtimes on the pages can be run; a job of another project becomes one with as many equal pods."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from helpers.clusterinmemory import decoded
from helpers.docs import DOCS, Shown, shown
from helpers.trainworld import CONFIG, decoded_train
from tfjob_controller.api.tfjob import validation as tfjobvalidation
from tfjob_controller.api.trainjob import types
from tfjob_controller.api.trainjob.runtime import TrainingRuntime
from tfjob_controller.api.trainjob.types import TrainJob
from tfjob_controller.api.trainjob.validation import validate, validate_runtime
from tfjob_controller.jobs.frameworks.registry import BUILT_IN
from tfjob_controller.kinds.trainjob.plan import build_train_plan
from tfjob_controller.kinds.trainjob.recipe import Recipe
from tfjob_controller.kinds.trainjob.runtimes import RuntimeResolver
from tfjob_controller.kube.cache.store import Store

PAGE = (DOCS / "trainjob.md").read_text("utf-8")
OURS = "kubeflow.org/v2alpha1"
SHOWN = (*shown("trainjob*.md", "TrainJob"), *shown("README.md", "TrainJob", folder=DOCS.parent))
JOBS = [each for each in SHOWN if each.manifest["apiVersion"] == OURS]
RUNTIMES = shown("trainjob*.md", "TrainingRuntime", "ClusterTrainingRuntime")
# By kind of another project, the field with its roles.
OLD_ROLES = {
    "TFJob": "tfReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
}
MOVED = shown("*migration.md", "TrainJob", *OLD_ROLES)
BEFORE = [old for old in MOVED if OLD_ROLES.get(old.manifest["kind"]) in old.manifest["spec"]]

Object = dict[str, Any]


def decoded_runtime(given: Shown, **metadata: str) -> TrainingRuntime:
    meta = {**given.manifest["metadata"], "resourceVersion": "1", "uid": given.name, **metadata}
    return msgspec.convert({"metadata": meta, "spec": given.manifest["spec"]}, TrainingRuntime)


def runtimes() -> RuntimeResolver:
    """Those that the pages show, and that is all: built-in ones are no hindrance where they are missing."""
    namespaced, cluster = Store[TrainingRuntime](), Store[TrainingRuntime]()
    for each in RUNTIMES:
        is_namespaced = each.manifest["kind"] == types.NAMESPACED_RUNTIME
        store = namespaced if is_namespaced else cluster
        store.upsert(decoded_runtime(each, **({"namespace": "ns"} if is_namespaced else {})))
    for framework in BUILT_IN:
        meta = {"name": framework.runtime, "resourceVersion": "1", "uid": framework.runtime}
        cluster.upsert(msgspec.convert({"metadata": meta, "spec": {"framework": framework.name}}, TrainingRuntime))
    return RuntimeResolver(namespaced, cluster)


def framework_and_nodes(job: TrainJob) -> tuple[str, int]:
    found = runtimes().resolve(job, datetime.now(UTC))
    plan = build_train_plan(Recipe(job, found.framework, found.spec, CONFIG))
    return found.framework.name, sum(each.role.name == types.NODE for each in plan.replicas.all)


def test_every_job_and_runtime_shown_can_be_used() -> None:
    assert {
        runtime.name: problem for runtime in RUNTIMES if (problem := validate_runtime(decoded_runtime(runtime)))
    } == {}
    for example in JOBS:
        job = decoded_train(example.manifest)
        assert validate(job) is None, example.name
        framework, nodes = framework_and_nodes(job)
        assert framework == example.manifest["spec"].get("framework", framework), example.name
        assert nodes >= 1, example.name


def test_each_framework_has_a_section_with_a_job_that_it_runs() -> None:
    for framework in (built_in.name for built_in in BUILT_IN):
        section = PAGE.partition(f"\n### {framework}\n")[2].partition("\n### ")[0]
        (first, *_) = [job for job in JOBS if f"name: {job.manifest['metadata']['name']}\n" in section]
        assert framework_and_nodes(decoded_train(first.manifest))[0] == framework
        assert f"manifests/samples/trainjob-{framework}.yaml" in section


def after(before: Shown) -> Object:
    """Returns our job of the same name on the same page."""
    name = before.manifest["metadata"]["name"]
    ours = (job for job in MOVED if job.page == before.page and job not in BEFORE)
    (job,) = (job.manifest for job in ours if job.manifest["metadata"]["name"] == name)
    return job


def old_roles(before: Shown) -> Iterator[tuple[int, str]]:
    """Yields the replicas and the image of each role; an MPIJob's launcher is none of the nodes."""
    roles = before.manifest["spec"][OLD_ROLES[before.manifest["kind"]]]
    for name, role in roles.items():
        if name != "Launcher":
            yield role["replicas"], role["template"]["spec"]["containers"][0]["image"]


def new_roles(job: Object) -> Iterator[tuple[int, str]]:
    if job["kind"] == "TFJob":
        for role in job["spec"]["replicaSpecs"]:
            yield role["replicas"], role["template"]["spec"]["containers"][0]["image"]
    else:
        yield job["spec"]["numNodes"], job["spec"]["trainer"]["image"]


def test_a_job_that_was_moved_can_be_run_and_has_as_many_pods_of_the_same_image() -> None:
    assert {old.manifest["kind"] for old in BEFORE} == OLD_ROLES.keys()
    for before in BEFORE:
        job = after(before)
        old, new = list(old_roles(before)), list(new_roles(job))
        assert sum(count for count, _ in new) == sum(count for count, _ in old), before.name
        assert {image for _, image in new} == {image for _, image in old}, before.name
        if processes := before.manifest["spec"].get("nprocPerNode"):
            assert str(job["spec"]["trainer"]["numProcPerNode"]) == processes
        if job["kind"] == "TFJob":
            assert tfjobvalidation.validate(decoded(job)) is None, before.name
        else:
            assert validate(decoded_train(job)) is None, before.name
