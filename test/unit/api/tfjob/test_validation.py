"""The rules of api/tfjob/validation.py. test/integration/test_crd.py holds the API server to the same manifests."""

import json
from typing import Any

import msgspec
import pytest

from helpers.badmanifests import BAD_MANIFESTS
from helpers.goodmanifests import GOOD_MANIFESTS, Good
from helpers.manifests import Manifest, container, master, parameter_servers, pod_template, tfjob, workers
from helpers.refusals import Bad, Change
from helpers.specchanges import CHANGES
from tfjob_controller.api.common.managedby import MANAGED_BY_FIXED
from tfjob_controller.api.tfjob.types import TFJOBS, TFJobSpec
from tfjob_controller.api.tfjob.validation import CHIEF_NEVER_ENDS, has_training_image, validate, validate_change


def verdict(manifest: Manifest) -> str | None:
    return validate(TFJOBS.decode(json.dumps(manifest).encode()))


@pytest.mark.parametrize("bad", BAD_MANIFESTS, ids=lambda bad: bad.name)
def test_what_the_crd_refuses_is_refused(bad: Bad) -> None:
    assert verdict(bad.manifest) == bad.words


@pytest.mark.parametrize("good", GOOD_MANIFESTS, ids=lambda good: good.name)
def test_what_the_crd_takes_is_taken(good: Good) -> None:
    assert verdict(good.manifest) is None


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ({"spec": None, "metadata": None}, None),
        ({"spec": "x"}, ".spec: expected an object"),
        ({"spec": {"containers": [None]}}, ".spec.containers: expected a list of objects"),
        ({"spec": {"nodeSelector": ["a"]}}, ".spec.nodeSelector: expected an object"),
        ({"spec": {"securityContext": []}}, ".spec.securityContext: expected an object"),
        (pod_template(container(securityContext=1)), ".spec.containers[0].securityContext: expected an object"),
        ({"spec": {"initContainers": {}}}, ".spec.initContainers: expected a list of objects"),
        ({"spec": {"initContainers": [{"env": ["A=b"]}]}}, ".spec.initContainers[0].env: expected a list of objects"),
        ({"spec": {"volumes": ["x"]}}, ".spec.volumes: expected a list of objects"),
        ({"metadata": "x"}, ".metadata: expected an object"),
        ({"metadata": {"labels": ["a"]}}, ".metadata.labels: expected an object"),
        (pod_template(container(env=["A=b"])), ".spec.containers[0].env: expected a list of objects"),
        (
            pod_template(container(restartPolicyRules=["Restart"])),
            ".spec.containers[0].restartPolicyRules: expected a list of objects",
        ),
        (pod_template(container(), container("b", resources=[1])), ".spec.containers[1].resources: expected an object"),
        (
            pod_template(container(resources={"limits": "all"})),
            ".spec.containers[0].resources.limits: expected an object",
        ),
        (pod_template(container(volumeMounts=None, env=[], resources={"limits": None})), None),
    ],
    ids=str,
)
def test_what_the_controller_adds_to_has_the_shape_that_it_expects(template: Any, problem: str | None) -> None:
    """The CRD leaves these open; without this check such a template would fail each sync with a traceback."""
    found = verdict(tfjob(master(), workers(template=template)))
    if problem is None:
        assert found is None or "container named tensorflow" in found
    else:
        assert found == f"spec.replicaSpecs[1].template{problem}"


def test_only_the_image_of_the_container_named_tensorflow_counts() -> None:
    assert has_training_image(pod_template(container("sidecar"), container()))
    assert not has_training_image(pod_template(container("sidecar")))
    assert not has_training_image(pod_template(container("sidecar"), {"name": "tensorflow"}))
    assert not has_training_image(pod_template(container(image="")))
    assert not has_training_image({})
    assert not has_training_image(None)


def test_a_default_server_with_fields_of_its_own_cannot_be_the_chief_either() -> None:
    """The CRD takes it, as released ones did; before there were such servers, it was a container without an image."""
    server = parameter_servers(template=pod_template({"name": "tensorflow", "resources": {}}))
    found = verdict(tfjob(server, terminationPolicy={"chief": {"replicaName": "PS"}}))
    assert found == f"spec: {CHIEF_NEVER_ENDS}"


def specs(change: Change) -> tuple[TFJobSpec, TFJobSpec]:
    old, new = (msgspec.convert(manifest["spec"], TFJobSpec) for manifest in (change.before, change.after))
    return old, new


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_what_is_fixed_cannot_change_once_the_job_is_started(change: Change) -> None:
    assert validate_change(*specs(change)) == (f"spec: {change.refusal}" if change.refusal else None)


def test_all_but_the_manager_can_change_before_the_job_is_started() -> None:
    for change in {change.refusal: change for change in CHANGES}.values():
        old, new = specs(change)
        refused = f"spec: {change.refusal}" if change.refusal == MANAGED_BY_FIXED else None
        assert validate_change(msgspec.structs.replace(old, runtime_id=""), new) == refused, change.name
