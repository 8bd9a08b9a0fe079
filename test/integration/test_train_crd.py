"""Responses of a real API server and kubectl to TrainJobs and runtimes, without a controller."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from helpers.anytrainspec import runtime_specs, train_specs
from helpers.badmanifests import Bad
from helpers.badtrainmanifests import BAD_RUNTIMES, BAD_TRAINJOBS
from helpers.goodmanifests import Good
from helpers.goodtrainmanifests import GOOD_RUNTIMES, GOOD_TRAINJOBS
from helpers.kubectl import Kubectl, refusal
from helpers.poll import eventually
from helpers.serverwords import comparable, problems_of_change, problems_of_creation
from helpers.trainchanges import TRAIN_CHANGES, TrainChange
from helpers.trainmanifests import override, role_template, runtime, trainjob
from localcluster.api import Api, RefusedError
from tfjob_controller.api.trainjob.runtime import decode_training_runtime
from tfjob_controller.api.trainjob.types import decode_trainjob
from tfjob_controller.api.trainjob.validation import validate, validate_runtime

pytestmark = pytest.mark.cluster

STATUS = {
    "phase": "Running",
    "state": "RUNNING",
    "summary": "Running",
    "reason": "waits for nobody",
    "nodes": "1/2",
    "runtime": "torch-distributed",
    "restarts": 3,
    "restartCounts": {"uid": 3},
    "succeededIndexes": ["dataset-initializer-0"],
    "jobsStatus": [
        {"name": "node", "replicas": 2, "ready": 1, "active": 2, "succeeded": 0, "failed": 0, "suspended": 0}
    ],
    "metrics": [{"name": "loss", "value": "0.125", "logTime": "2026-01-01T00:00:00Z"}],
    "progress": "step 40",
    "conditions": [
        {
            "type": "Running",
            "status": "True",
            "reason": "AllNodesRunning",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
    ],
    "startTime": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize("bad", [*BAD_TRAINJOBS, *BAD_RUNTIMES], ids=lambda bad: bad.name)
def test_an_invalid_object_is_refused_with_these_messages(api: Api, crd_namespace: str, bad: Bad) -> None:
    assert problems_of_creation(api, crd_namespace, bad.manifest) == tuple(map(comparable, bad.answers))


@pytest.mark.parametrize("bads", [BAD_TRAINJOBS, BAD_RUNTIMES], ids=["TrainJob", "runtime"])
def test_kubectl_says_what_the_server_has_against_an_object(kubectl: Kubectl, bads: Sequence[Bad]) -> None:
    bad = bads[0]
    answer = kubectl.run("apply", "--dry-run=server", "-f", "-", manifest=bad.manifest)
    expected = refusal(bad.manifest["kind"], bad.manifest["metadata"]["name"], *bad.answers)
    assert (answer.code, comparable(answer.error.rstrip("\n"))) == (1, comparable(expected))


@pytest.mark.parametrize("good", [*GOOD_TRAINJOBS, *GOOD_RUNTIMES], ids=lambda good: good.name)
def test_a_good_object_is_accepted(api: Api, crd_namespace: str, good: Good) -> None:
    assert problems_of_creation(api, crd_namespace, good.manifest) == ()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spec=train_specs, its=runtime_specs)
def test_the_controller_refuses_all_that_the_api_server_refuses(
    api: Api, crd_namespace: str, spec: Any, its: Any
) -> None:
    """But for nulls and empty texts: those are absent fields to the controller, and the server asks more of them."""
    where = f"namespaces/{crd_namespace}"
    for plural, manifest in (("trainjobs", trainjob()), ("trainingruntimes", runtime(namespaced=True))):
        given_spec = spec if plural == "trainjobs" else its
        text = json.dumps(given_spec)
        if "null" in text or '""' in text:
            continue
        written = {**manifest, "spec": given_spec}
        path = f"/apis/kubeflow.org/v2alpha1/{where}/{plural}"
        refused = api_refusal(api, path, written)
        assert refused is None or verdict(written) is not None, refused


def api_refusal(api: Api, path: str, manifest: dict[str, Any]) -> str | None:
    try:
        api.request("POST", path, manifest, query={"dryRun": "All"})
    except RefusedError as error:
        return str(error)
    return None


def verdict(manifest: dict[str, Any]) -> str | None:
    raw = json.dumps(manifest).encode()
    if manifest["kind"] == "TrainJob":
        return validate(decode_trainjob(raw))
    return validate_runtime(decode_training_runtime(raw))


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        pytest.param(trainjob(numnodes=2), "spec.numnodes", id="a mistyped field"),
        pytest.param(
            trainjob(podSpecOverrides=[override(containers=[{"name": "node", "image": "x", "command": ["y"]}])]),
            "spec.podSpecOverrides[0].containers[0].image",
            id="what the trainer says, in an override",
        ),
        pytest.param(
            runtime(templates={"node": role_template(resource={})}),
            "spec.templates.node.spec.containers[0].resource",
            id="a field of a pod in a runtime",
        ),
        pytest.param(
            trainjob(podSpecOverrides=[override(volumes=[{"name": "scratch", "emptyDirr": {}}])]),
            "spec.podSpecOverrides[0].volumes[0].emptyDirr",
            id="a field of a pod in an override",
        ),
        pytest.param(trainjob(trainer={"env": {"A": "b"}}), "spec.trainer.env.A", id="env as a map"),
    ],
)
def test_an_unknown_field_is_named(kubectl: Kubectl, manifest: dict[str, Any], field: str) -> None:
    answer = kubectl.run("apply", "--dry-run=server", "-f", "-", manifest=manifest)
    assert f'unknown field "{field}"' in answer.error


@pytest.mark.parametrize("change", TRAIN_CHANGES, ids=lambda change: change.name)
def test_a_job_keeps_what_is_fixed(api: Api, crd_namespace: str, change: TrainChange) -> None:
    status = {"phase": "Creating"} if change.started else None
    expected = (f"{change.at}: Forbidden: {change.refusal}",) if change.refusal else ()
    assert problems_of_change(api, crd_namespace, change.before, change.after, status) == expected


def test_a_runtime_may_change_at_any_time(kubectl: Kubectl) -> None:
    before = runtime(namespaced=True, framework="torch", templates={"node": role_template(image="a")})
    kubectl.must("create", "-f", "-", manifest=before)
    after = runtime(namespaced=True, framework="mpi", templates={"launcher": role_template("launcher", image="b")})
    kubectl.must("replace", "-f", "-", manifest=after)


def test_applying_the_same_manifest_again_changes_nothing_of_a_started_job(kubectl: Kubectl) -> None:
    (whole,) = (good.manifest for good in GOOD_TRAINJOBS if good.name == "every-field")
    kubectl.must("apply", "-f", "-", manifest=whole)
    set_status(kubectl, STATUS)
    before = stored(kubectl)
    assert before["spec"] == whole["spec"]
    kubectl.must("apply", "-f", "-", manifest=whole)
    assert stored(kubectl) == before


def stored(kubectl: Kubectl) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl.must("get", "trj", "example-train", "-o", "json"))
    return found


def set_status(kubectl: Kubectl, status: dict[str, Any]) -> None:
    patch = json.dumps({"status": status})
    kubectl.must("patch", "trainjob", "example-train", "--subresource=status", "--type=merge", "-p", patch)


@pytest.fixture
def running(kubectl: Kubectl) -> Kubectl:
    """In this namespace example-train is shown as running."""
    kubectl.must("create", "-f", "-", manifest=trainjob())
    set_status(kubectl, STATUS)
    return kubectl


@pytest.mark.parametrize("name", ["trj", "kubeflow"])
def test_columns(running: Kubectl, name: str) -> None:
    head, row = running.must("get", name).splitlines()
    assert head.split() == ["NAME", "STATE", "NODES", "RUNTIME", "AGE"]
    # There are several kinds in the category, so that kubectl says of which each is.
    shown = "trainjob.kubeflow.org/example-train" if name == "kubeflow" else "example-train"
    assert row.split()[:-1] == [shown, "Running", "1/2", "torch-distributed"]


def test_wide_columns(running: Kubectl) -> None:
    head, row = running.must("get", "trj", "-o", "wide").splitlines()
    assert head.split()[4:] == ["REASON", "RESTARTS", "AGE"]
    assert row.split()[4:-1] == ["waits", "for", "nobody", "3"]


def test_a_status_is_stored_whole(running: Kubectl) -> None:
    assert stored(running)["status"] == STATUS


def test_the_spec_is_not_written_through_the_status(running: Kubectl) -> None:
    patch = json.dumps({"spec": {"suspend": True}, "status": {"phase": "Done"}})
    running.must("patch", "trj", "example-train", "--subresource=status", "--type=merge", "-p", patch)
    assert ("suspend" in stored(running)["spec"], stored(running)["status"]["phase"]) == (False, "Done")


def test_runtimes_are_listed_with_what_they_give(kubectl: Kubectl) -> None:
    kubectl.must("create", "-f", "-", manifest=runtime(namespaced=True, framework="jax", numNodes=4))
    head, row = kubectl.must("get", "trt").splitlines()
    assert head.split() == ["NAME", "FRAMEWORK", "NODES", "AGE"]
    assert row.split()[:-1] == ["example-runtime", "jax", "4"]


def test_a_runtime_for_all_has_no_namespace_and_keeps_its_templates(administrator: Kubectl) -> None:
    given = runtime("test-for-all", templates={"node": role_template(image="x", env=[{"name": "A", "value": None}])})
    try:
        administrator.must("create", "-f", "-", manifest=given)
        found = json.loads(administrator.must("get", "ctrt", "test-for-all", "-o", "json"))
        assert ("namespace" in found["metadata"], found["spec"]) == (False, given["spec"])
    finally:
        administrator.run("delete", "ctrt", "test-for-all", "--ignore-not-found")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("trainjob.spec.modelConfig.input.config", "Another name for storageUri"),
        ("trainjob.status.jobsStatus.ready", "The ready pods."),
        ("trainingruntime.spec.templates.spec", "The pods' spec."),
        ("clustertrainingruntime.spec.workspace.persistentVolumeClaim.claimName", "The claim's name."),
    ],
    ids=lambda each: each.split(".")[0] if "." in each else "",
)
def test_explain_describes_each_field(administrator: Kubectl, path: str, words: str) -> None:
    # The server publishes the schemas of a kind some time after it serves it.
    eventually(lambda: administrator.run("explain", path).code == 0)
    assert words in " ".join(administrator.must("explain", path).split())
