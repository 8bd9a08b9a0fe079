"""The form for a new job: what it reads from a manifest, what it writes, and what it says about bad input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tfjob_controller.client.builders import tfjob, trainjob
from tfjob_controller.client.errors import ClientError
from tfjob_controller.dashboard.jobform import JobForm, cloned, new_manifest
from tfjob_controller.dashboard.jobtexts import (
    MAX_YAML,
    TextError,
    field_named,
    form_of,
    manifest_of,
    problems_of,
    texts_of,
    yaml_of,
)
from tfjob_controller.kinds.kindform import GPU, UNPRINTABLE, FormError
from tfjob_controller.kinds.names import OWN_KIND_NAMES
from tfjob_controller.kube.errors import ApiError

SAMPLES = Path(__file__).parents[3] / "manifests" / "samples"
printable = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), max_size=20)
words = st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=12), max_size=4)


def numbers(least: int = 1) -> st.SearchStrategy[int]:
    return st.integers(least, 1000)


def optional_numbers() -> st.SearchStrategy[int | None]:
    return st.none() | numbers()


def forms() -> st.SearchStrategy[JobForm]:
    common = {
        "name": printable,
        "namespace": printable,
        "image": printable,
        "command": words.map(tuple),
        "gpus": optional_numbers(),
        "gang": st.none() | st.booleans(),
        "minimum": optional_numbers(),
        "maximum": optional_numbers(),
    }
    return st.builds(JobForm, kind=st.just("TFJob"), nodes=numbers(0), **common) | st.builds(
        JobForm, kind=st.just("TrainJob"), nodes=optional_numbers(), framework=printable, **common
    )


def sample_jobs() -> list[dict[str, Any]]:
    documents = [each for path in sorted(SAMPLES.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text())]
    return [each for each in documents if each and each["kind"] in ("TFJob", "TrainJob")]


MANIFESTS = [
    {},
    new_manifest("TFJob"),
    new_manifest("TrainJob"),
    tfjob("a", image="x", workers=2, ps=1, gang=True, resources={GPU: 1}),
    tfjob("b", image="x", workers=2, master=False, autoscaling={"maxWorkers": 4, "resize": "Restart"}),
    trainjob("c", image="y", nodes=2, resources={GPU: 2, "cpu": 1}, gang={"priority": 3}),
    *sample_jobs(),
]


@given(form=forms(), manifest=st.sampled_from(MANIFESTS))
def test_what_is_written_is_read_again(form: JobForm, manifest: dict[str, Any]) -> None:
    assert JobForm.from_manifest(form.apply(manifest)) == form


@given(form=forms())
def test_texts_and_yaml_lose_nothing(form: JobForm) -> None:
    assert form_of(texts_of(form)) == form
    written = form.apply({})
    assert manifest_of(yaml_of(written)) == written


def test_a_form_without_changes_changes_nothing() -> None:
    for manifest in MANIFESTS[1:]:
        assert JobForm.from_manifest(manifest).apply(manifest) == manifest


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if pairs is None:
        return {path: value}
    found: dict[tuple[str, ...], Any] = {}
    for key, each in pairs:
        found |= leaves(each, (*path, str(key)))
    return found


# The last keys of the paths that the form writes, or that stand above a command's words.
WRITTEN = {"name", "namespace", "image", "command", "framework", "numNodes", "replicas", GPU, "enabled"} | {
    "minNodes",
    "maxNodes",
    "minWorkers",
    "maxWorkers",
}


@given(form=forms(), manifest=st.sampled_from(MANIFESTS[1:]))
def test_other_fields_survive(form: JobForm, manifest: dict[str, Any]) -> None:
    if form.kind != manifest["kind"]:
        return
    after = leaves(form.apply(manifest))
    for path, value in leaves(manifest).items():
        is_written = path[-1] in WRITTEN or "command" in path[-2:]
        if not is_written:
            assert after.get(path, {}) == value, path


def test_a_trainer_that_had_only_the_number_of_nodes_is_not_left_empty() -> None:
    manifest = new_manifest("TrainJob") | {"spec": {"trainer": {"numNodes": 2}}}
    form = form_of(texts_of(JobForm.from_manifest(manifest)) | {"nodes": "3"})
    assert form.apply(manifest)["spec"] == {"numNodes": 3}


def test_a_change_applies_to_replicas_that_had_the_same_value() -> None:
    manifest = manifest_of(yaml_of(tfjob("a", image="x", workers=2)))
    manifest["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["image"] = "of-the-master"
    form = form_of(texts_of(JobForm.from_manifest(manifest)) | {"image": "new", "command": "python t.py"})
    containers = [each["template"]["spec"]["containers"][0] for each in form.apply(manifest)["spec"]["replicaSpecs"]]
    assert [each["image"] for each in containers] == ["of-the-master", "new"]
    assert [each["command"] for each in containers] == [["python", "t.py"]] * 2


def test_another_kind_keeps_the_metadata_alone() -> None:
    manifest = trainjob("a", image="y", nodes=2, maxRestarts=3) | {"metadata": {"name": "a", "labels": {"team": "x"}}}
    form = form_of(texts_of(JobForm.from_manifest(manifest)) | {"kind": "TFJob"})
    found = form.apply(manifest)
    assert found["kind"] == "TFJob"
    assert found["metadata"] == manifest["metadata"]
    assert "maxRestarts" not in found["spec"]


def test_a_clone_has_a_name_of_its_own_and_nothing_of_the_existing_object() -> None:
    original = tfjob("a", image="x") | {"status": {"phase": "Done"}}
    original["metadata"] |= {
        "uid": "1",
        "resourceVersion": "2",
        "labels": {"team": "x"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    original["spec"]["RuntimeId"] = "k3f9"
    found = cloned(original)
    assert found["metadata"] == {"name": "a-copy", "labels": {"team": "x"}}
    assert "status" not in found
    assert "RuntimeId" not in found["spec"]
    assert original["spec"]["RuntimeId"] == "k3f9"


# Each level repeats the one before it twice.
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))
GOOD = texts_of(JobForm("TrainJob", "a", image="y", nodes=2))


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("kind", "Pod"),
        ("name", "a\x00"),
        ("namespace", "a" * 64),
        ("image", "a b"),
        ("command", "a" * 50_001),
        ("command", "echo 'a"),
        ("framework", "a\nb"),
        ("nodes", "0"),
        ("nodes", "5001"),
        ("nodes", "²"),
        ("nodes", "9" * 21),
        ("gang", "perhaps"),
        ("minimum", "1.5"),
    ],
)
def test_bad_input_is_named_at_its_field_with_a_remedy(field: str, text: str) -> None:
    with pytest.raises(TextError) as caught:
        form_of(GOOD | {field: text})
    (sentence,) = caught.value.problems.by_field.values()
    assert caught.value.problems.of(field) == sentence
    assert sentence.endswith(".")
    assert "; " in sentence


def test_all_bad_fields_are_named_at_once() -> None:
    with pytest.raises(TextError) as caught:
        form_of(GOOD | {"nodes": "x", "gpus": "y"})
    assert set(caught.value.problems.by_field) == {"nodes", "gpus"}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("yaml", "a: ["),
        ("yaml", "- a"),
        ("yaml", "a: 1\n---\nb: 2\n"),
        ("yaml", "x" * (MAX_YAML + 1)),
        ("", "a: &a [*a]"),
        ("", "1: 2"),
        ("", BOMB),
        ("kind", "kind: Pod"),
        ("nodes", yaml_of(new_manifest("TrainJob") | {"spec": {"numNodes": True}})),
        (
            "nodes",
            yaml_of(new_manifest("TFJob") | {"spec": {"replicaSpecs": {}, "x": 1}}).replace("Specs: {}", "Specs: [1]"),
        ),
        ("command", yaml_of(new_manifest("TrainJob") | {"spec": {"trainer": {"command": [1]}}})),
        ("image", yaml_of(new_manifest("TrainJob") | {"spec": {"trainer": {"image": "a\x1b[2Jb"}}})),
        ("command", yaml_of(new_manifest("TrainJob") | {"spec": {"trainer": {"command": ["a\u202eb"]}}})),
    ],
)
def test_a_yaml_that_the_form_cannot_show_is_refused_in_one_sentence(field: str, text: str) -> None:
    with pytest.raises(FormError) as caught:
        JobForm.from_manifest(manifest_of(text))
    assert caught.value.field == field
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["a\u202eb", "a\x1bb", "a\u2028b"])
def test_yaml_shows_characters_that_would_change_its_look_as_escapes(text: str) -> None:
    manifest = new_manifest("TrainJob") | {"spec": {"trainer": {"args": [text, "\u00fc"]}}}
    shown = yaml_of(manifest)
    assert not UNPRINTABLE.search(shown)
    assert manifest_of(shown) == manifest
    assert "\u00fc" in yaml_of(manifest | {"spec": {"trainer": {"args": ["\u00fc"]}}})


def test_merge_keys_are_refused_and_numbers_of_base_60_are_text() -> None:
    """Nine of them for each of nine levels took 51 s and 740 MB, and 190 KB of `1:1:1…` 3 s."""
    levels = "".join(f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}\n" for level in range(1, 40))
    with pytest.raises(FormError, match="line 2: a merge key"):
        manifest_of(f"a0: &a0 {{k: v}}\n{levels}")
    sixties = ":".join(["1"] * (MAX_YAML // 2 - 10))
    assert manifest_of(f"a: {sixties}\nb: 1:30.5\nc: 7") == {"a": sixties, "b": "1:30.5", "c": 7}


@pytest.mark.parametrize(
    "value",
    [
        "!!bool x",
        "!!float _",
        pytest.param("0x" + "f" * 10_000, id="a number that Python does not print"),
        "18446744073709551616",
    ],
)
def test_a_yaml_with_a_value_that_is_none_of_its_type_is_refused(value: str) -> None:
    with pytest.raises(FormError, match=r"^The YAML "):
        manifest_of(f"a: {value}")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("spec.replicaSpecs[0].template.spec.containers[0].image", "image"),
        ("spec.numNodes: is required, because the runtime does not set it", "nodes"),
        ("minNodes must not be more than maxNodes: lower it, or raise maxNodes", "minimum"),
        ("numNodes must be from elasticPolicy.minNodes to maxNodes", "nodes"),
        ("the manifest is not a TrainJob: Expected `str`, got `int` - at `$.spec.framework`", "framework"),
        ('tfjobs.kubeflow.org "image" already exists', "name"),
        ('TrainJob.kubeflow.org "gang" is invalid: spec.priority: no', ""),
        ('namespaces "nowhere" not found', "namespace"),
        ("metadata.namespace: is required: give the job a namespace", "namespace"),
    ],
)
def test_an_answer_belongs_to_the_field_that_it_names(text: str, field: str) -> None:
    assert field_named(text) == field


def test_the_causes_of_a_refusal_are_shown_at_their_fields() -> None:
    causes = [("spec.numNodes", "must be 1 or more"), ("spec.maxRestarts", "must be 0 or more")]
    error = ClientError("refused", ApiError(422, "Invalid", "refused", causes=causes))
    assert problems_of(error, "refused").by_field == {
        "nodes": "spec.numNodes: must be 1 or more",
        "yaml": "spec.maxRestarts: must be 0 or more",
    }


WITHOUT_A_KIND = """
import sys
from tfjob_controller.kinds import names
deleted = sys.argv[1]
names.OWN_KIND_NAMES = [name for name in names.OWN_KIND_NAMES if name.word != deleted]
sys.modules[f"tfjob_controller.kinds.{deleted}"] = None
from tfjob_controller.dashboard import app, jobform, jobtexts
manifest = jobform.new_manifest(jobform.DEFAULT_KIND)
form = jobform.JobForm.from_manifest(manifest)
assert jobtexts.form_of(jobtexts.texts_of(form)).apply(manifest) == manifest
print(*jobform.FORMS)
"""


@pytest.mark.parametrize("deleted", [name.word for name in OWN_KIND_NAMES])
def test_without_the_folder_and_the_line_of_a_kind_the_form_offers_the_others(deleted: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_KIND, deleted], capture_output=True, text=True, timeout=60, check=False
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == [name.kind for name in OWN_KIND_NAMES if name.word != deleted]
