"""The policy of docs/security.md that bounds the priority of gangs, on a real control plane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.docs import shown
from helpers.kubectl import Answer, Kubectl
from helpers.manifests import master, tfjob
from helpers.poll import eventually
from helpers.trainmanifests import trainjob

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
REFUSED = "at most 0 in this namespace"


def gang(**spec: Any) -> Object:
    return {
        "apiVersion": "scheduling.kubeflow.org/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": "g"},
        "spec": {"members": [{"name": "worker"}], **spec},
    }


def asked(kubectl: Kubectl, manifest: Object) -> Answer:
    return kubectl.run("create", "--dry-run=server", "-f", "-", manifest=manifest)


def is_bounded(kubectl: Kubectl) -> bool:
    return REFUSED in asked(kubectl, gang(priority=1)).error


@pytest.fixture(scope="module")
def bounded(gang_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """On a control plane that no other test uses meanwhile; nothing of the policy is left when it ends."""
    cache: Path = tmp_path_factory.mktemp("policy")
    namespace = new_namespace(gang_plane.api, "bounded")
    kubectl = Kubectl(gang_plane.kubeconfig, cache, namespace)
    objects = [each.manifest for each in shown("security.md", *KINDS)]
    try:
        for each in objects:
            kubectl.must("apply", "-f", "-", manifest=each)
        eventually(lambda: is_bounded(kubectl))
        yield kubectl
    finally:
        for each in objects:
            kubectl.must("delete", "--ignore-not-found", "-f", "-", manifest=each)
        eventually(lambda: not is_bounded(kubectl))
        delete_namespace(gang_plane.api, namespace)


MAKES: dict[str, Callable[..., Object]] = {
    "a Gang": gang,
    "a TFJob": lambda **spec: tfjob(master(), gang={"enabled": True, **spec}),
    "a TrainJob": lambda **spec: trainjob(gang={"enabled": True, **spec}),
}


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES.keys())
def test_a_priority_above_the_bound_is_refused_and_one_within_it_is_not(
    bounded: Kubectl, make: Callable[..., Object]
) -> None:
    assert REFUSED in asked(bounded, make(priority=1)).error
    assert asked(bounded, make(priority=0)).code == 0
    assert asked(bounded, make()).code == 0


def test_a_gang_cannot_be_changed_to_go_above_it(bounded: Kubectl) -> None:
    bounded.must("create", "-f", "-", manifest=gang())
    answer = bounded.run("patch", "gang", "g", "--type=merge", '--patch={"spec": {"priority": 1}}')
    assert REFUSED in answer.error


def test_a_namespace_can_be_exempted(bounded: Kubectl) -> None:
    bounded.must("label", "namespace", bounded.namespace, "gang-priority=any")
    eventually(lambda: not is_bounded(bounded))
    bounded.must("label", "namespace", bounded.namespace, "gang-priority-")
    eventually(lambda: is_bounded(bounded))
