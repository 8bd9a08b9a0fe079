"""The rules of kube/meta.py."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_controller.kube.meta import ObjectMeta, OwnerReference, PathError, Resource, controller_of, key_of, split_key

PODS = Resource("", "v1", "pods", "Pod")
JOBS = Resource("batch", "v1", "jobs", "Job")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=253)


class Thing(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(PODS.path(), "/api/v1/pods", id="all namespaces"),
        pytest.param(PODS.path("d"), "/api/v1/namespaces/d/pods", id="one namespace"),
        pytest.param(PODS.path("d", "a"), "/api/v1/namespaces/d/pods/a", id="one object"),
        pytest.param(PODS.path("d", "a", "status"), "/api/v1/namespaces/d/pods/a/status", id="subresource"),
        pytest.param(JOBS.path("d", "a"), "/apis/batch/v1/namespaces/d/jobs/a", id="group"),
        pytest.param(NODES.path("", "n"), "/api/v1/nodes/n", id="cluster-scoped"),
        pytest.param(NODES.path("ignored", "n"), "/api/v1/nodes/n", id="cluster-scoped ignores a namespace"),
    ],
)
def test_paths_are_those_of_the_api(path: str, expected: str) -> None:
    assert path == expected


@pytest.mark.parametrize("part", ["a/b", "a?b", "a#b", "a%2fb", ".."])
def test_no_name_leads_to_another_path(part: str) -> None:
    for names in ((part, "a"), ("d", part), ("d", "a", part)):
        with pytest.raises(PathError, match="cannot be a name"):
            PODS.path(*names)
    assert PODS.path("d", "a.b-c") == "/api/v1/namespaces/d/pods/a.b-c"


@pytest.mark.parametrize(("resource", "version"), [(PODS, "v1"), (JOBS, "batch/v1")])
def test_the_core_group_has_no_name_in_api_versions(resource: Resource, version: str) -> None:
    assert resource.api_version == version


@given(namespace=st.one_of(st.just(""), NAMES), name=NAMES)
def test_a_key_splits_into_what_it_was_made_of(namespace: str, name: str) -> None:
    assert split_key(key_of(Thing(ObjectMeta(name=name, namespace=namespace)))) == (namespace, name)


OTHER = OwnerReference(kind="ReplicaSet", uid="1")
CONTROLLER = OwnerReference(kind="Job", uid="2", controller=True)


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        pytest.param((), None, id="nobody"),
        pytest.param((OTHER,), None, id="an owner that does not control"),
        pytest.param((OTHER, CONTROLLER), CONTROLLER, id="the one that does"),
    ],
)
def test_the_controller_is_the_owner_that_says_so(
    owners: tuple[OwnerReference, ...], expected: OwnerReference | None
) -> None:
    assert controller_of(Thing(ObjectMeta(owner_references=owners))) == expected
