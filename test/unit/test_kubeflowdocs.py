"""docs/kubeflow-trainer.md: it names every field, and its sentences are those of the controller."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.kubeflowmanifests import kubeflow_runtime, kubeflow_trainjob, replicated_job
from helpers.kubeflowworld import decoded_kubeflow, decoded_runtime, kubeflow_recipe
from tfjob_controller.api.kubeflowtrainer import runtime, types
from tfjob_controller.api.kubeflowtrainer.validation import validate, validate_runtime
from tfjob_controller.jobs.plan.gangterms import ON_REQUEST, GangPolicy
from tfjob_controller.jobs.plan.model import UnplannableError
from tfjob_controller.kinds.kubeflowtrainer.plan import build_kubeflow_plan

PAGE = (Path(__file__).parents[2] / "docs/kubeflow-trainer.md").read_text("utf-8")
# The parts of a spec whose fields the page lists.
LISTED = (
    types.KubeflowTrainJobSpec,
    types.KubeflowTrainer,
    types.Initializers,
    types.AssetInitializer,
    types.KubeflowTrainJobStatus,
    types.ReplicatedJobStatus,
    runtime.MachineLearningPolicy,
    runtime.TorchPolicy,
    runtime.MpiPolicy,
    runtime.PodGroupPolicy,
    runtime.CoschedulingPolicy,
    runtime.VolcanoPolicy,
    runtime.ReplicatedJob,
    runtime.JobSetNetwork,
    runtime.SuccessPolicy,
    runtime.FailurePolicy,
    runtime.JobSetSpec,
)
# Structure, or what every field of its row is about.
OBVIOUS = {"initializer", "trainer", "name", "conditions", "operator", "replicatedJobs"}


def fields() -> Iterator[str]:
    for kind in LISTED:
        yield from (each.encode_name for each in msgspec.structs.fields(kind))


def test_the_page_names_every_field() -> None:
    assert [name for name in sorted({*fields()} - OBVIOUS) if not re.search(rf"[`.]{name}\b", PAGE)] == []


def problem_of(*jobs: Any, runtime: Any = None, **spec: Any) -> str:
    manifest = runtime or kubeflow_runtime(*jobs)
    job = decoded_kubeflow(kubeflow_trainjob(runtime=manifest["metadata"]["name"], **spec))
    found = validate(job) or validate_runtime(decoded_runtime(manifest))
    if found is None:
        with pytest.raises(UnplannableError) as caught:
            build_kubeflow_plan(kubeflow_recipe(runtime=manifest, gangs=GangPolicy(ON_REQUEST, "s"), **spec))
        found = str(caught.value)
    return found


def quoted() -> list[str]:
    """The sentences with which something is refused."""
    return re.findall(r"refused[^`|]*: `([^`]*)`", PAGE)


REFUSED: dict[str, dict[str, Any]] = {
    "must not have reserved envs": {"trainer": {"env": [{"name": "PET_NNODES", "value": "1"}]}},
    "the runtime has no job": {"initializer": {"dataset": {"storageUri": "hf://a/b"}}},
    "contains unknown field": {"trainer": {"newer": 1}},
    "hostNetwork": {
        "podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": {"hostNetwork": True}}],
    },
    "torch.elasticPolicy": {"runtime": kubeflow_runtime(policy={"torch": {"elasticPolicy": {}}})},
    "mpiImplementation": {"runtime": kubeflow_runtime(policy={"mpi": {"mpiImplementation": "Intel"}})},
    "mlPolicy.flux": {"runtime": kubeflow_runtime(policy={"flux": {}})},
    "podGroupPolicy.volcano:": {"runtime": kubeflow_runtime(podGroupPolicy={"volcano": {}})},
    "networkTopology": {"runtime": kubeflow_runtime(podGroupPolicy={"volcano": {"networkTopology": {}}})},
    "the status Ready": {
        "runtime": kubeflow_runtime(
            replicated_job(), replicated_job("x", ancestor="", dependsOn=[{"name": "node", "status": "Ready"}])
        )
    },
    "podFailurePolicy": {"runtime": kubeflow_runtime(replicated_job(job={"podFailurePolicy": {}}))},
}


@pytest.mark.parametrize("words", REFUSED)
def test_the_sentences_are_what_the_controller_says(words: str) -> None:
    (sentence,) = [each for each in quoted() if words in each]
    pattern = ".*".join(re.escape(part) for part in sentence.split("…"))
    assert re.fullmatch(f"(.*){pattern}", problem_of(**REFUSED[words])), problem_of(**REFUSED[words])


def test_every_sentence_is_checked() -> None:
    unchecked = [each for each in quoted() if not any(words in each for words in REFUSED)]
    assert unchecked == []
