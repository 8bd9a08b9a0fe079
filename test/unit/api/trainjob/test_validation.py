"""The rules of api/trainjob/validation.py. What the API server says of the same: test/integration/test_crd.py."""

import json
from typing import Any

import pytest

from helpers.badtrainmanifests import BAD_RUNTIMES, BAD_TRAINJOBS
from helpers.goodmanifests import Good
from helpers.goodtrainmanifests import GOOD_RUNTIMES, GOOD_TRAINJOBS
from helpers.refusals import Bad, Change
from helpers.trainchanges import TRAIN_CHANGES
from helpers.trainmanifests import Manifest, override, role_template, runtime, trainjob
from tfjob_controller.api.trainjob.runtime import TRAINING_RUNTIMES, RuntimeSpec
from tfjob_controller.api.trainjob.types import FRAMEWORK_ANNOTATION, TRAINJOBS, TrainJob
from tfjob_controller.api.trainjob.validation import (
    DATASET_COVERED,
    FRAMEWORK_TWICE,
    IMAGE_MISSING,
    NODES_MISSING,
    RESERVED_ENV,
    STARTED_FIXED,
    validate,
    validate_change,
    validate_runtime,
    validate_with_runtime,
)


def decoded(manifest: Manifest, **status: Any) -> TrainJob:
    return TRAINJOBS.decode(json.dumps({**manifest, "status": status}).encode())


def verdict_of_runtime(manifest: Manifest) -> str | None:
    return validate_runtime(TRAINING_RUNTIMES.decode(json.dumps(manifest).encode()))


@pytest.mark.parametrize("bad", BAD_TRAINJOBS, ids=lambda bad: bad.name)
def test_what_the_crd_refuses_is_refused(bad: Bad) -> None:
    assert validate(decoded(bad.manifest)) == bad.words


@pytest.mark.parametrize("good", GOOD_TRAINJOBS, ids=lambda good: good.name)
def test_what_the_crd_takes_is_taken(good: Good) -> None:
    assert validate(decoded(good.manifest)) is None


@pytest.mark.parametrize("bad", BAD_RUNTIMES, ids=lambda bad: bad.name)
def test_a_runtime_that_the_crd_refuses_is_refused(bad: Bad) -> None:
    assert verdict_of_runtime(bad.manifest) == bad.words


@pytest.mark.parametrize("good", GOOD_RUNTIMES, ids=lambda good: good.name)
def test_a_runtime_that_the_crd_takes_is_taken(good: Good) -> None:
    assert verdict_of_runtime(good.manifest) is None


def test_nobody_sets_what_a_framework_sets() -> None:
    for name in RESERVED_ENV:
        variables = [{"name": name, "value": "1"}]
        of_override = [override(initContainers=[{"name": "wait", "env": variables}])]
        problem = f"{name} is set by the controller: leave it out"
        assert validate(decoded(trainjob(trainer={"env": variables}))) == f"spec.trainer.env[0]: {problem}"
        at = "spec.podSpecOverrides[0].initContainers[0].env[0]"
        assert validate(decoded(trainjob(podSpecOverrides=of_override))) == f"{at}: {problem}"
        assert validate(decoded(trainjob(datasetConfig={"storageUri": "s3://a", "env": variables}))) is None


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"trainer": {"env": ["A=b"]}}, "spec.trainer.env[0]: expected object, got str"),
        ({"trainer": {"env": {"A": "b"}}}, "spec.trainer.env: expected array, got object"),
        ({"trainer": {"env": [{"name": ""}]}}, "spec.trainer.env[0].name: is required, as text"),
        ({"trainer": {"env": [{"name": "A", "value": None, "valueFrom": None}]}}, None),
        ({"trainer": None, "modelConfig": None, "labels": None, "metrics": {"names": None}}, None),
        ({"labels": {"a": "b\n"}}, "spec.labels.a: must be of at most 63 letters"),
        ({"modelConfig": {"input": {"config": "hf://a" + "b" * 2048}}}, "spec.modelConfig.input.config: must have at"),
    ],
    ids=str,
)
def test_what_an_older_crd_lets_through_is_refused_and_read_without_a_traceback(spec: Any, problem: str | None) -> None:
    found = validate(decoded({**trainjob(), "spec": spec}))
    assert (found is None) if problem is None else (found or "").startswith(problem)


_NAMELESS = [{"value": "1"}]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"trainer": {"env": _NAMELESS}}, "trainer.env[0].name"),
        ({"datasetConfig": {"storageUri": "s3://a", "env": _NAMELESS}}, "datasetConfig.env[0].name"),
        ({"modelConfig": {"input": {"config": "s3://a", "env": _NAMELESS}}}, "modelConfig.input.env[0].name"),
        ({"modelConfig": {"output": {"storageUri": "s3://a", "env": _NAMELESS}}}, "modelConfig.output.env[0].name"),
        (
            {"podSpecOverrides": [override(containers=[{"name": "a", "env": _NAMELESS}])]},
            "podSpecOverrides[0].containers[0].env[0].name",
        ),
        (
            {"podSpecOverrides": [override(), override(imagePullSecrets=[{"name": "a"}, {}])]},
            "podSpecOverrides[1].imagePullSecrets[1].name",
        ),
        ({"podSpecOverrides": [override(volumes=[{}])]}, "podSpecOverrides[0].volumes[0].name"),
    ],
    ids=str,
)
def test_what_is_added_to_by_name_has_one_everywhere(spec: dict[str, Any], field: str) -> None:
    assert validate(decoded(trainjob(**spec))) == f"spec.{field}: is required, as text"


@pytest.mark.parametrize("path", ["/workspace//dataset", "/workspace/./dataset/.", "//workspace", "workspace/dataset"])
def test_a_mount_over_the_dataset_is_refused_however_it_is_written(path: str) -> None:
    over = override(containers=[{"name": "node", "volumeMounts": [{"name": "v", "mountPath": path}]}])
    manifest = trainjob(datasetConfig={"storageUri": "s3://a"}, podSpecOverrides=[over])
    assert validate(decoded(manifest)) == f"spec.podSpecOverrides: {DATASET_COVERED}"


def test_a_role_that_is_not_there_is_named_where_no_crd_does_it() -> None:
    found = verdict_of_runtime(runtime(templates={"nodes": role_template("nodes")}))
    assert (found or "").startswith("spec.templates: the names of templates are node, launcher, dataset-initializer")


def annotated(annotation: str, **spec: Any) -> Manifest:
    manifest = trainjob(**spec)
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": {FRAMEWORK_ANNOTATION: annotation}}}


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        pytest.param(annotated("jax"), None, id="the annotation alone"),
        pytest.param(annotated("jax", framework="jax"), None, id="the same"),
        pytest.param(annotated("jax", framework="torch"), f"spec: {FRAMEWORK_TWICE}", id="another"),
    ],
)
def test_annotation_and_spec_name_one_framework(manifest: Manifest, problem: str | None) -> None:
    assert validate(decoded(manifest)) == problem


@pytest.mark.parametrize(
    ("spec", "given", "problem"),
    [
        pytest.param({}, {}, None, id="a job that says all"),
        pytest.param({"nodes": None}, {}, NODES_MISSING, id="no nodes"),
        pytest.param({"nodes": None}, {"numNodes": 3}, None, id="nodes of the runtime"),
        pytest.param({"nodes": None, "trainer": {"numNodes": 3}}, {}, None, id="nodes of the trainer"),
        pytest.param({"trainer": {"image": ""}}, {}, IMAGE_MISSING, id="no image"),
        pytest.param(
            {"trainer": {"image": ""}}, {"templates": {"node": role_template(image="x")}}, None, id="its image"
        ),
        pytest.param(
            {"trainer": {"image": ""}}, {"templates": {"node": role_template()}}, IMAGE_MISSING, id="none of its"
        ),
        pytest.param(
            {"trainer": {"image": ""}},
            {"templates": {"launcher": role_template("launcher", image="x")}},
            IMAGE_MISSING,
            id="an image of another step",
        ),
    ],
)
def test_job_and_runtime_together_say_nodes_and_image(
    spec: dict[str, Any], given: dict[str, Any], problem: str | None
) -> None:
    its = TRAINING_RUNTIMES.decode(json.dumps(runtime(**given)).encode()).spec
    assert validate_with_runtime(decoded(trainjob(**spec)).spec, its) == problem


def test_a_job_without_a_runtime_says_nodes_and_image_itself() -> None:
    assert validate_with_runtime(decoded(trainjob()).spec, None) is None
    assert validate_with_runtime(decoded(trainjob(nodes=None)).spec, None) == NODES_MISSING
    assert validate_with_runtime(decoded(trainjob(trainer={"image": ""})).spec, RuntimeSpec()) == IMAGE_MISSING


def change_of(change: Change, phase: str) -> str | None:
    return validate_change(decoded(change.before, phase=phase), decoded(change.after, phase=phase))


@pytest.mark.parametrize("change", TRAIN_CHANGES, ids=lambda change: change.name)
def test_what_is_fixed_cannot_change(change: Change) -> None:
    found = change_of(change, "Creating" if change.started else "")
    assert found == (f"{change.at}: {change.refusal}" if change.refusal else None)


def test_all_but_runtime_and_manager_can_change_before_the_job_is_started() -> None:
    for change in {(change.at, change.refusal): change for change in TRAIN_CHANGES}.values():
        always = change.at in ("spec.runtimeRef", "spec.managedBy")
        assert (change_of(change, "") is None) is not always, change.name


def test_the_annotation_of_a_started_job_is_fixed() -> None:
    old, new = (decoded(annotated(framework), phase="Running") for framework in ("jax", "torch"))
    assert validate_change(old, new) == f"metadata.annotations.{FRAMEWORK_ANNOTATION}: {STARTED_FIXED}"
