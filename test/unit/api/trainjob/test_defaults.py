"""The rules of api/trainjob/defaults.py."""

import json
from typing import Any

import pytest

from helpers.trainmanifests import role_template, runtime, trainjob
from tfjob_controller.api.trainjob import defaults as defaults
from tfjob_controller.api.trainjob.runtime import TRAINING_RUNTIMES, RuntimeSpec
from tfjob_controller.api.trainjob.types import FRAMEWORK_ANNOTATION, TRAINJOBS, TrainJob, TrainJobSpec


def job(nodes: int | None = 2, annotations: dict[str, str] | None = None, **spec: Any) -> TrainJob:
    manifest = trainjob(nodes=nodes, **spec)
    manifest["metadata"] |= {"annotations": annotations or {}}
    return TRAINJOBS.decode(json.dumps(manifest).encode())


def spec_of(nodes: int | None = 2, **spec: Any) -> TrainJobSpec:
    return job(nodes, **spec).spec


def runtime_spec(**spec: Any) -> RuntimeSpec:
    return TRAINING_RUNTIMES.decode(json.dumps(runtime(**spec)).encode()).spec


@pytest.mark.parametrize(
    ("spec", "its", "nodes"),
    [
        pytest.param(spec_of(2), runtime_spec(numNodes=5), 2, id="the job's"),
        pytest.param(spec_of(None, trainer={"numNodes": 3}), runtime_spec(numNodes=5), 3, id="the trainer's"),
        pytest.param(spec_of(None), runtime_spec(numNodes=5), 5, id="the runtime's"),
        pytest.param(spec_of(None), runtime_spec(), None, id="nobody's"),
        pytest.param(spec_of(None), None, None, id="no runtime"),
    ],
)
def test_the_first_that_says_the_nodes_counts(spec: TrainJobSpec, its: RuntimeSpec | None, nodes: int | None) -> None:
    assert defaults.num_nodes_of(spec, its) == nodes


@pytest.mark.parametrize(
    ("spec", "its", "processes"),
    [
        pytest.param(spec_of(trainer={"numProcPerNode": 4}), runtime_spec(numProcPerNode="gpu"), 4, id="the job's"),
        pytest.param(spec_of(), runtime_spec(numProcPerNode="gpu"), "gpu", id="the runtime's"),
        pytest.param(spec_of(), None, "auto", id="nobody's"),
    ],
)
def test_the_first_that_says_the_processes_counts(
    spec: TrainJobSpec, its: RuntimeSpec | None, processes: int | str
) -> None:
    assert defaults.num_proc_per_node_of(spec, its) == processes


def test_the_image_of_the_job_goes_before_that_of_the_runtime() -> None:
    its = runtime_spec(templates={"node": role_template(image="theirs")})
    assert defaults.image_of(spec_of(trainer={"image": "ours"}), its) == "ours"
    assert defaults.image_of(spec_of(trainer={"image": ""}), its) == "theirs"


def test_only_the_container_named_like_the_role_gives_an_image() -> None:
    template = {"spec": {"containers": [{"name": "log", "image": "a"}, {"name": "node", "image": "b"}]}}
    assert defaults.template_image_of(runtime_spec(templates={"node": template}), "node") == "b"
    assert defaults.template_image_of(runtime_spec(templates={"node": template}), "launcher") == ""


@pytest.mark.parametrize(
    ("given", "framework"),
    [
        pytest.param(job(framework="torch"), "torch", id="the spec's"),
        pytest.param(job(annotations={FRAMEWORK_ANNOTATION: "jax", "other": "x"}), "jax", id="the annotation's"),
        pytest.param(job(), "", id="none"),
    ],
)
def test_a_framework_is_named_by_spec_or_annotation(given: TrainJob, framework: str) -> None:
    assert defaults.framework_of(given) == framework


@pytest.mark.parametrize(
    ("model", "uri"),
    [
        pytest.param({"input": {"config": "hf://a/b"}}, "hf://a/b", id="config"),
        pytest.param({"input": {"storageUri": "hf://a/c"}}, "hf://a/c", id="storageUri"),
        pytest.param({"output": {"storageUri": "s3://a"}}, "", id="output alone"),
        pytest.param(None, "", id="none"),
    ],
)
def test_a_model_has_one_uri_by_two_names(model: Any, uri: str) -> None:
    assert defaults.model_uri_of(spec_of(modelConfig=model)) == uri


def test_the_dataset_and_the_trained_model_are_where_the_job_says() -> None:
    spec = spec_of(
        datasetConfig={"storageUri": "s3://d"},
        modelConfig={"output": {"storageUri": "s3://m", "secretRef": {"name": "keys"}}},
    )
    output = defaults.model_output_of(spec)
    assert output is not None
    assert output.secret_ref is not None
    assert (defaults.dataset_uri_of(spec), output.storage_uri, output.secret_ref.name) == ("s3://d", "s3://m", "keys")
    assert (defaults.dataset_uri_of(spec_of()), defaults.model_output_of(spec_of())) == ("", None)


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        pytest.param(None, ("loss", "accuracy", "throughput", "step", "epoch"), id="default"),
        pytest.param({"names": ["f1"]}, ("f1",), id="named"),
        pytest.param({"names": []}, (), id="none"),
    ],
)
def test_metrics_are_those_of_the_job_or_the_usual_ones(metrics: Any, names: tuple[str, ...]) -> None:
    assert defaults.metric_names_of(spec_of(metrics=metrics)) == names


@pytest.mark.parametrize(("gang", "enabled"), [(None, None), ({}, None), ({"enabled": False}, False)], ids=str)
def test_a_job_may_leave_gang_scheduling_to_the_controller(gang: Any, enabled: bool | None) -> None:
    assert defaults.gang_enabled(spec_of(gang=gang)) is enabled
