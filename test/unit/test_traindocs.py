"""The pages on TrainJobs show jobs that can be run, and tell messages and figures as the code has them."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from helpers.docs import DOCS, Shown, shown
from helpers.trainworld import CONFIG, decoded_train
from tfjob_controller.api.trainjob import types
from tfjob_controller.api.trainjob.runtime import TrainingRuntime
from tfjob_controller.api.trainjob.types import TrainJob
from tfjob_controller.api.trainjob.validation import IMAGE_MISSING, STARTED_FIXED, validate, validate_runtime
from tfjob_controller.controller.kind import RUNTIME_TIMEOUT_SECONDS
from tfjob_controller.jobs import naming
from tfjob_controller.jobs.frameworks.registry import BUILT_IN
from tfjob_controller.jobs.state.restarts import BASE_SECONDS, CAP_SECONDS
from tfjob_controller.kinds.trainjob.plan import build_train_plan
from tfjob_controller.kinds.trainjob.podtemplate import NO_WORKSPACE
from tfjob_controller.kinds.trainjob.recipe import Recipe
from tfjob_controller.kinds.trainjob.runtimes import RuntimeResolver
from tfjob_controller.kube.cache.store import Store

PAGE = (DOCS / "trainjob.md").read_text("utf-8")
OURS = "kubeflow.org/v2alpha1"
SHOWN = (*shown("trainjob*.md", "TrainJob"), *shown("README.md", "TrainJob", folder=DOCS.parent))
JOBS = [each for each in SHOWN if each.manifest["apiVersion"] == OURS]
RUNTIMES = shown("trainjob*.md", "TrainingRuntime", "ClusterTrainingRuntime")


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


@pytest.mark.parametrize("each", JOBS, ids=lambda each: each.name)
def test_every_job_shown_can_be_run(each: Shown) -> None:
    job = decoded_train(each.manifest)
    assert validate(job) is None
    framework, nodes = framework_and_nodes(job)
    assert framework == each.manifest["spec"].get("framework", framework)
    assert nodes >= 1


@pytest.mark.parametrize("each", RUNTIMES, ids=lambda each: each.name)
def test_every_runtime_shown_can_be_used(each: Shown) -> None:
    assert validate_runtime(decoded_runtime(each)) is None


@pytest.mark.parametrize("framework", [each.name for each in BUILT_IN])
def test_each_framework_has_a_section_with_a_job_that_it_runs(framework: str) -> None:
    section = PAGE.partition(f"\n### {framework}\n")[2].partition("\n### ")[0]
    (first, *_) = [each for each in JOBS if f"name: {each.manifest['metadata']['name']}\n" in section]
    assert framework_and_nodes(decoded_train(first.manifest))[0] == framework
    assert f"manifests/samples/trainjob-{framework}.yaml" in section


@pytest.mark.parametrize(
    "words",
    [
        f"invalid job spec: {IMAGE_MISSING}",
        f"invalid job spec: {NO_WORKSPACE.partition(': name')[0]}",
        "spec.runtimeRef: there is no ClusterTrainingRuntime",
        f"{RUNTIME_TIMEOUT_SECONDS:.0f} seconds after the job's creation",
        f"{BASE_SECONDS} s, {2 * BASE_SECONDS} s, … up to {CAP_SECONDS} s",
        f"At most {types.MAX_NODES:,} nodes a job, {types.MAX_PROCS:,} processes a node, {types.MAX_METRICS} metrics",
        *(f"| `{label}` |" for label in (naming.KUBEFLOW, naming.TRAIN_JOB_NAME, naming.RUNTIME_ID, naming.JOB_TYPE)),
        *(
            f"`{command.rpartition('.')[0] and 'python -m '}{command}`"
            for each in BUILT_IN
            for command in each.commands
        ),
    ],
)
def test_the_page_says_it_as_the_code_does(words: str) -> None:
    assert words in " ".join(PAGE.split())


@pytest.mark.parametrize(
    "field", ["suspend", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "maxRestarts", "metrics"]
)
def test_the_page_lists_the_fields_that_may_change_in_a_started_job(field: str) -> None:
    assert field in STARTED_FIXED
    assert f"`{field}`" in PAGE.partition("- Once a job has started, only")[2].partition(" may change")[0]


def test_a_pytorchjob_that_was_moved_has_a_node_for_each_of_its_pods() -> None:
    (before,) = (each.manifest["spec"] for each in shown("trainjob-migration.md", "PyTorchJob"))
    (after,) = (each for each in JOBS if each.page == "trainjob-migration.md" and each.name.endswith("/resnet"))
    pods = sum(each["replicas"] for each in before["pytorchReplicaSpecs"].values())
    assert framework_and_nodes(decoded_train(after.manifest)) == ("torch", pods)
    assert str(after.manifest["spec"]["trainer"]["numProcPerNode"]) == before["nprocPerNode"]
