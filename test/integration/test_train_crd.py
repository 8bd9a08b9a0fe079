"""Responses of a real API server and kubectl to what only TrainJobs and runtimes have, without a controller.

test_crd.py has what holds for all kinds.
"""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from helpers.anytrainspec import runtime_specs, train_specs
from helpers.kubectl import Kubectl
from helpers.poll import eventually
from helpers.trainmanifests import override, role_template, runtime, trainjob
from localcluster.api import Api, RefusedError
from tfjob_controller.api.trainjob.runtime import decode_training_runtime
from tfjob_controller.api.trainjob.types import decode_trainjob
from tfjob_controller.api.trainjob.validation import validate, validate_runtime

pytestmark = pytest.mark.cluster


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


def test_a_runtime_may_change_at_any_time(kubectl: Kubectl) -> None:
    before = runtime(namespaced=True, framework="torch", templates={"node": role_template(image="a")})
    kubectl.must("create", "-f", "-", manifest=before)
    after = runtime(namespaced=True, framework="mpi", templates={"launcher": role_template("launcher", image="b")})
    kubectl.must("replace", "-f", "-", manifest=after)


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
