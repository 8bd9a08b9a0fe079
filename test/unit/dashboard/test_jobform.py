"""The form for a new job: what it reads from a manifest, what it writes, and what it says about bad input."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tfjob_controller.client.builders import tfjob, trainjob
from tfjob_controller.client.errors import ClientError
from tfjob_controller.dashboard.formproblems import field_named, problems_of
from tfjob_controller.dashboard.jobform import FORMS, JobForm, cloned, new_manifest
from tfjob_controller.dashboard.jobtexts import MAX_YAML, form_of, manifest_of, read_texts, texts_of, yaml_of
from tfjob_controller.kinds.kindform import UNPRINTABLE, FormError
from tfjob_controller.kinds.names import OWN_KIND_NAMES
from tfjob_controller.kinds.podform import GPU, ClaimMount, Gpus, Variable
from tfjob_controller.kube.errors import ApiError

SAMPLES = Path(__file__).parents[3] / "manifests" / "samples"
printable = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), max_size=20)
words = st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=12), max_size=4)


def numbers(least: int = 1) -> st.SearchStrategy[int]:
    return st.integers(least, 1000)


def optional_numbers() -> st.SearchStrategy[int | None]:
    return st.none() | numbers()


names = st.from_regex("[a-z]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)
lines = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=12)
variables = st.lists(
    st.builds(Variable, printable.filter(lambda name: name and "=" not in name), lines),
    max_size=3,
    unique_by=lambda variable: variable.name,
)
mounts = st.lists(
    st.builds(ClaimMount, names, names.map("/mnt/{}".format), st.booleans()),
    max_size=3,
    unique_by=lambda mount: mount.path,
)
quantities = st.sampled_from(["", "500m", "4", "0.5", "1e9", "12345678901234567890"])
memories = st.sampled_from(["", "512Mi", "16Gi", "1.5G", "2147483648"])


def common_values() -> dict[str, st.SearchStrategy[Any]]:
    """The fields of both kinds, without those whose values are limited by a kind."""
    return {
        "name": st.just("") | names,
        "namespace": st.just("") | names,
        "image": printable,
        "command": words.map(tuple),
        "cpu": quantities,
        "memory": memories,
        "gpus": st.none() | st.builds(Gpus, numbers(0), st.sampled_from([GPU, "amd.com/gpu"])),
        "shared_memory": memories,
        "env": variables.map(tuple),
        "volumes": mounts.map(tuple),
        "checkpoint": st.sampled_from(["", "s3://b/c", "pvc://claim/a b"]),
        "checkpoint_secret": st.just("") | names,
        "keep": optional_numbers(),
        "gang": st.none() | st.booleans(),
        "gang_timeout": optional_numbers(),
        "priority": st.none() | st.integers(-5, 5),
        "minimum": optional_numbers(),
        "maximum": optional_numbers(),
        "restarts": st.none() | numbers(0),
        "deadline": st.none() | st.integers(0, 10**6),
        "ttl": st.none() | st.integers(0, 10**6),
    }


def train_values() -> dict[str, st.SearchStrategy[Any]]:
    uris = st.sampled_from(["", "hf://org/name", "file:///a"])
    return {
        "runtime": st.just("") | names.map("ClusterTrainingRuntime/{}".format) | names.map("TrainingRuntime/{}".format),
        "framework": printable,
        **dict.fromkeys(("dataset", "model", "output"), uris),
        **dict.fromkeys(("dataset_secret", "model_secret", "output_secret"), st.just("") | names),
    }


def forms() -> st.SearchStrategy[JobForm]:
    common = common_values()
    return st.builds(JobForm, kind=st.just("TFJob"), nodes=numbers(0), **common) | st.builds(
        JobForm, kind=st.just("TrainJob"), nodes=optional_numbers(), **common, **train_values()
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


# The last keys of the paths that the form writes.
WRITTEN = {
    *("name", "namespace", "image", "framework", "numNodes", "replicas", "enabled", "timeoutSeconds", "priority"),
    *("minNodes", "maxNodes", "minWorkers", "maxWorkers", "cpu", "memory", GPU, "storageUri", "config", "keep", "kind"),
    *("maxRestarts", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"),
}
# Lists that it writes, with the entries that it keeps.
LISTS = {"command", "env", "volumes", "volumeMounts"}


@given(form=forms(), manifest=st.sampled_from(MANIFESTS[1:]))
def test_other_fields_survive(form: JobForm, manifest: dict[str, Any]) -> None:
    if form.kind != manifest["kind"]:
        return
    after = leaves(form.apply(manifest))
    for path, value in leaves(manifest).items():
        if path[-1] not in WRITTEN and not LISTS & {*path}:
            assert after.get(path, {}) == value, path


OTHER_ENV = [
    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    {"name": "LINES", "value": "a\nb"},
    {"name": "a=b", "value": "c"},
]
OTHER_VOLUMES = [
    {"name": "code", "configMap": {"name": "program"}},
    {"name": "part", "persistentVolumeClaim": {"claimName": "big"}},
    {"name": "scratch", "emptyDir": {}},
]
OTHER_MOUNTS = [
    {"name": "code", "mountPath": "/code"},
    {"name": "part", "mountPath": "/part", "subPath": "a"},
    {"name": "scratch", "mountPath": "/dev/shm"},
    {"name": "of-the-runtime", "mountPath": "/x"},
]


def with_other_entries(kind: str) -> dict[str, Any]:
    """A job whose variables and mounts the form only shows."""
    if kind == "TFJob":
        job = tfjob("a", image="x", workers=1)
        for replica in job["spec"]["replicaSpecs"]:
            pod = replica["template"]["spec"]
            pod["volumes"] = [*OTHER_VOLUMES]
            pod["containers"][0] |= {"env": [*OTHER_ENV], "volumeMounts": [*OTHER_MOUNTS]}
        return job
    override = {"targetJobs": [{"name": "node"}], "volumes": [*OTHER_VOLUMES]}
    override["containers"] = [{"name": "node", "volumeMounts": [*OTHER_MOUNTS], "env": [{"name": "X", "value": "y"}]}]
    job = trainjob("a", image="x", nodes=1, podSpecOverrides=[override])
    job["spec"]["trainer"]["env"] = [*OTHER_ENV]
    return job


def lists_of(job: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """The variables, volumes and mounts of the last replica."""
    if job["kind"] == "TFJob":
        pod = job["spec"]["replicaSpecs"][-1]["template"]["spec"]
        container = pod["containers"][0]
        return container["env"], pod["volumes"], container["volumeMounts"]
    (override,) = job["spec"]["podSpecOverrides"]
    assert override["containers"][0]["env"] == [{"name": "X", "value": "y"}]
    return job["spec"]["trainer"]["env"], override["volumes"], override["containers"][0]["volumeMounts"]


@pytest.mark.parametrize("kind", FORMS)
@given(env=variables, wanted=mounts, size=memories)
def test_entries_of_lists_that_the_form_only_shows_keep_their_order(
    kind: str, env: list[Variable], wanted: list[ClaimMount], size: str
) -> None:
    before = with_other_entries(kind)
    shown = JobForm.from_manifest(before)
    assert [line.split(":")[0] for line in shown.other_env] == ["TOKEN", "LINES", "a=b"]
    assert [line.split(":")[0] for line in shown.other_volumes] == ["/code", "/part", "/dev/shm", "/x"]
    form = replace(shown, env=tuple(env), volumes=tuple(wanted), shared_memory=size)
    after = form.apply(before)
    assert JobForm.from_manifest(after) == form
    kept = OTHER_ENV, OTHER_VOLUMES, OTHER_MOUNTS
    for entries, others in zip(lists_of(after), kept, strict=True):
        assert [entry for entry in entries if entry in others] == others
    assert replace(form, env=(), volumes=(), shared_memory="").apply(after) == before


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("name", [field.name for field in fields(JobForm) if field.compare and field.name != "kind"])
def test_each_field_can_be_set_alone_and_removed_again(kind: str, name: str) -> None:
    """Without a value a field is not in the manifest."""
    if name not in FORMS[kind].parts and name not in ("name", "namespace"):
        return
    before = new_manifest(kind)
    empty = JobForm.from_manifest(before)
    value = getattr(EXAMPLE, name)
    changed = replace(empty, **{name: value})
    written = changed.apply(before)
    assert JobForm.from_manifest(written) == changed
    assert written != before
    if name != "nodes":
        assert JobForm.from_manifest(empty.apply(written)) == empty
        assert len(yaml_of(empty.apply(written))) == len(yaml_of(before))


EXAMPLE = JobForm(
    kind="",
    name="a",
    namespace="b",
    runtime="TrainingRuntime/own",
    framework="torch",
    image="x:1",
    command=("run",),
    nodes=3,
    cpu="500m",
    memory="16Gi",
    gpus=Gpus(2, "amd.com/gpu"),
    shared_memory="8Gi",
    env=(Variable("A", "b c"),),
    volumes=(ClaimMount("data", "/data", read_only=True),),
    dataset="s3://b/d",
    dataset_secret="d",
    model="hf://o/m",
    model_secret="m",
    output="gs://b/o",
    output_secret="o",
    checkpoint="s3://b/c",
    checkpoint_secret="c",
    keep=5,
    gang=False,
    gang_timeout=60,
    priority=-1,
    minimum=1,
    maximum=4,
    restarts=0,
    deadline=7200,
    ttl=0,
)


def test_the_limit_of_a_resource_follows_its_request_if_both_were_the_same() -> None:
    def resources(before: dict[str, Any], **texts: str) -> dict[str, Any]:
        manifest = trainjob("a", image="y", nodes=1)
        manifest["spec"]["trainer"]["resourcesPerNode"] = before
        form = form_of(texts_of(JobForm.from_manifest(manifest)) | texts)
        found: dict[str, Any] = form.apply(manifest)["spec"]["trainer"].get("resourcesPerNode", {})
        return found

    same = {"requests": {"cpu": 1, "memory": "2Gi"}, "limits": {"cpu": 1, "memory": "2Gi"}}
    assert resources(same, cpu="3") == {"requests": {"cpu": 3, "memory": "2Gi"}, "limits": {"cpu": 3, "memory": "2Gi"}}
    other = {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi", "example.com/x": 1}}
    assert resources(other, memory="1.5Gi")["limits"] == other["limits"]
    assert resources(other, memory="") == {"limits": {"example.com/x": 1}}
    assert resources({}, cpu="1", memory="1Gi") == {
        "requests": {"cpu": 1, "memory": "1Gi"},
        "limits": {"memory": "1Gi"},
    }
    both = {"limits": {GPU: "2"}, "requests": {GPU: 2}}
    assert resources(both, gpu_resource="amd.com/gpu") == {"limits": {"amd.com/gpu": 2}, "requests": {"amd.com/gpu": 2}}


def test_the_other_name_of_a_model_is_read_and_replaced() -> None:
    manifest = trainjob("a", image="y", nodes=1, modelConfig={"input": {"config": "hf://a/b"}})
    texts = texts_of(JobForm.from_manifest(manifest))
    assert texts["model"] == "hf://a/b"
    after = form_of(texts | {"model": "hf://c/d"}).apply(manifest)
    assert after["spec"]["modelConfig"] == {"input": {"storageUri": "hf://c/d"}}


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [("90", 90, "90s"), ("30m", 1800, "30m"), ("2 h", 7200, "2h"), ("604800", 604800, "7d"), ("0", 0, "0")],
)
def test_times_have_units(text: str, seconds: int, shown: str) -> None:
    form = form_of(GOOD | {"ttl": text})
    assert (form.ttl, texts_of(form)["ttl"]) == (seconds, shown)


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
        ("cpu", "4x"),
        ("cpu", "-1"),
        ("memory", "4g"),
        ("memory", "64"),
        ("shared_memory", "0"),
        ("gpus", "two"),
        ("gpu_resource", "cpu"),
        ("env", "A=1\nB"),
        ("env", "A=1\nA=2"),
        ("env", "\n".join(f"A{n}=" for n in range(257))),
        ("volumes", "data"),
        ("volumes", "data:relative"),
        ("volumes", "data:/a:rw"),
        ("volumes", "Data:/a"),
        ("volumes", "a:/a\nb:/a"),
        ("volumes", "\n".join(f"a:/{n}" for n in range(65))),
        ("runtime", "Pod/x"),
        ("runtime", "UPPER"),
        ("dataset", "bucket/data"),
        ("dataset", "s3://" + "a" * 2048),
        ("output", "https://x/y"),
        ("checkpoint_secret", "a b"),
        ("keep", "0"),
        ("priority", "high"),
        ("priority", "9999999999"),
        ("gang_timeout", "0"),
        ("deadline", "soon"),
        ("ttl", "99999d"),
        ("minimum", "1.5"),
    ],
)
def test_bad_input_is_named_at_its_field_with_a_remedy(field: str, text: str) -> None:
    texts = GOOD | {"gpus": "1"} | {field: text}
    field = field.replace("gpu_resource", "gpus")
    with pytest.raises(FormError) as caught:
        form_of(texts)
    (sentence,) = caught.value.problems.values()
    assert caught.value.problems == {field: sentence}
    assert sentence.endswith(".")
    assert "; " in sentence


def test_all_bad_fields_are_named_at_once() -> None:
    with pytest.raises(FormError) as caught:
        form_of(GOOD | {"nodes": "x", "gpus": "y", "cpu": "4x", "env": "A"})
    assert set(caught.value.problems) == {"nodes", "gpus", "cpu", "env"}
    wrong = {"numNodes": "x", "maxRestarts": True, "trainer": {"command": 1, "env": {}}, "gang": {"enabled": 1}}
    with pytest.raises(FormError) as caught:
        JobForm.from_manifest(new_manifest("TrainJob") | {"metadata": {"name": 1}, "spec": wrong})
    assert set(caught.value.problems) == {"name", "nodes", "restarts", "command", "env", "gang"}


def test_a_field_that_is_wrong_keeps_its_value_in_the_yaml() -> None:
    manifest = trainjob("a", image="y", nodes=2)
    form, problems = read_texts(texts_of(JobForm.from_manifest(manifest)) | {"nodes": "x", "cpu": "3"})
    spec = form.apply(manifest, kept=problems)["spec"]
    assert (spec["numNodes"], spec["trainer"]["resourcesPerNode"]) == (2, {"requests": {"cpu": 3}})


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
        ("spec.trainer.resourcesPerNode.limits.cpu", "cpu"),
        ("spec.replicaSpecs[0].template.spec.containers[0].resources.requests[memory]", "memory"),
        ("spec.trainer.resourcesPerNode.limits.amd.com/gpu", "gpus"),
        ("spec.trainer.env[3].name", "env"),
        ("spec.datasetConfig.env[0]", "dataset"),
        ("spec.datasetConfig.secretRef.name", "dataset_secret"),
        ("spec.modelConfig.output.storageUri", "output"),
        ("spec.modelConfig.input", "model"),
        ("spec.checkpoint.keep", "keep"),
        ("spec.gang.timeoutSeconds", "gang_timeout"),
        ("spec.podSpecOverrides[0].containers[0].volumeMounts[0].mountPath", "volumes"),
        ("spec.runtimeRef: there is no ClusterTrainingRuntime x", "runtime"),
        ("spec.backoffLimit", "restarts"),
    ],
)
def test_an_answer_belongs_to_the_field_that_it_names(text: str, field: str) -> None:
    assert field_named(text) == field


def test_the_causes_of_a_refusal_are_shown_at_their_fields() -> None:
    causes = [("spec.numNodes", "must be 1 or more"), ("spec.labels", "must be few")]
    error = ClientError("refused", ApiError(422, "Invalid", "refused", causes=causes))
    assert problems_of(error, "refused") == {
        "nodes": "spec.numNodes: must be 1 or more",
        "yaml": "spec.labels: must be few",
    }


def test_each_unknown_field_is_a_problem_of_its_own_place() -> None:
    message = (
        'strict decoding error: unknown field "spec.fooBar", unknown field "spec.trainer.env[0].foo", '
        'unknown field "spec.x", duplicate field "spec.trainer.image"'
    )
    error = ClientError("refused", ApiError(400, "BadRequest", message))
    remedy = "correct or remove it in the YAML"
    assert problems_of(error, message) == {
        "yaml": f'unknown field "spec.fooBar": {remedy}; unknown field "spec.x": {remedy}',
        "env": f'unknown field "spec.trainer.env[0].foo": {remedy}',
        "image": f'duplicate field "spec.trainer.image": {remedy}',
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
