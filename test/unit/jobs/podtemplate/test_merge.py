"""The rules of jobs/podtemplate/merge.py: what overrides and what completes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tfjob_controller.jobs.podtemplate.merge import (
    container_of,
    mount_path,
    override_items,
    spec_of,
    with_changed_container,
    with_container,
    with_env,
    with_missing_mounts,
    with_missing_volumes,
    with_mounts,
    with_spec,
    with_volumes,
)


def named(*names: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, **fields} for name in names]


OLD, NEW = {"from": "old"}, {"from": "new"}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(None, None, [], id="nothing"),
        pytest.param(named("a"), None, named("a"), id="nothing-new"),
        pytest.param(None, named("a"), named("a"), id="only-new"),
        pytest.param(
            named("a", "b", **OLD),
            named("c", "a", **NEW),
            [*named("a", **NEW), *named("b", **OLD), *named("c", **NEW)],
            id="the-new-takes-the-place-of-the-old",
        ),
        pytest.param(
            named("a", "b", "a", "b", **OLD),
            named("a", **NEW),
            [*named("a", **NEW), *named("b", "b", **OLD)],
            id="what-is-there-twice-is-overridden-twice",
        ),
    ],
)
def test_what_overrides_wins_and_keeps_the_place(first: Any, second: Any, expected: list[Any]) -> None:
    assert override_items(first, second) == expected


@pytest.mark.parametrize(
    ("present", "added", "expected"),
    [
        pytest.param("a=1", "a=2", "a=2", id="replaced"),
        pytest.param("b=1", "a=$(b)", "b=1 a=$(b)", id="new-at-the-end-where-it-may-use-the-others"),
        pytest.param("a=1 b=$(a)", "a=2", "a=2 b=$(a)", id="in-its-place-where-the-others-may-use-it"),
        pytest.param("a=1 b=$(a)", "c=3 a=$(c)", "c=3 a=$(c) b=$(a)", id="after-a-new-one-that-it-uses"),
        pytest.param("a=1 x=1 b=1", "a=$(b)", "b=1 a=$(b) x=1", id="after-a-later-one-that-it-uses"),
        pytest.param("a=1 b=1 c=$(b)", "a=$(c)", "b=1 c=$(b) a=$(c)", id="after-what-that-one-uses"),
        pytest.param("a=1 b=1 c=$(d) d=1", "a=$(c)", "c=$(d) d=1 a=$(c) b=1", id="in-the-order-of-the-runtime"),
        pytest.param("a=1 b=$(a)", "a=$(b)", "a=$(b) b=$(a)", id="in-a-circle"),
        pytest.param("a=1 b=1", "a=$$(b)", "a=$$(b) b=1", id="an-escaped-reference-is-none"),
        pytest.param("a=1 b=1", "a=$(x)$(", "a=$(x)$( b=1", id="what-is-not-there"),
    ],
)
def test_a_variable_keeps_its_place_unless_it_refers_to_a_later_one(
    present: str | None, added: str, expected: str
) -> None:
    assert with_env({"name": "c", "env": variables(present)}, variables(added) or [])["env"] == variables(expected)


def variables(text: str | None) -> list[dict[str, Any]] | None:
    """The variables of words NAME=VALUE."""
    pairs = (word.partition("=") for word in text.split()) if text is not None else None
    return [{"name": name, "value": value} for name, _, value in pairs] if pairs is not None else None


def test_a_container_without_variables_gets_no_empty_list() -> None:
    assert with_env({"name": "c"}, []) == {"name": "c"}


MINE = {"name": "mine", "mountPath": "/data"}


def test_a_mount_overrides_what_is_at_its_path_and_a_missing_one_does_not() -> None:
    container = {"name": "c", "volumeMounts": [MINE]}
    other = {"name": "other", "mountPath": "/data"}
    assert with_mounts(container, [other])["volumeMounts"] == [other]
    assert with_missing_mounts(container, [other])["volumeMounts"] == [MINE]


@pytest.mark.parametrize("path", ["/data/", "//data", "/x/../data", "data"])
def test_mounts_are_at_the_same_path_however_it_is_written(path: str) -> None:
    container, other = {"name": "c", "volumeMounts": [MINE]}, {"name": "other", "mountPath": path}
    assert with_mounts(container, [other])["volumeMounts"] == [other]
    assert with_missing_mounts(container, [other])["volumeMounts"] == [MINE]


def test_a_missing_mount_is_left_out_if_its_volume_is_mounted_elsewhere() -> None:
    container = {"name": "c", "volumeMounts": [MINE]}
    assert with_missing_mounts(container, [{**MINE, "mountPath": "/other"}])["volumeMounts"] == [MINE]
    assert mount_path(container, "mine", "/default") == "/data"
    assert mount_path(container, "other", "/default") == "/default"


def test_volumes_override_by_name_and_missing_ones_do_not() -> None:
    spec = {"volumes": named("a", **OLD)}
    assert with_volumes({"spec": spec}, named("a", **NEW))["spec"]["volumes"] == named("a", **NEW)
    assert with_missing_volumes(spec, named("a", **NEW))["volumes"] == named("a", **OLD)


def test_a_container_that_a_template_lacks_is_made_and_one_that_a_pod_lacks_is_not() -> None:
    assert with_container({}, "node") == {"spec": {"containers": [{"name": "node"}]}}
    assert with_changed_container({}, "node", lambda each: {**each, "image": "x"}) == {"containers": []}


def test_only_the_container_of_that_name_is_changed() -> None:
    template = {"metadata": {"labels": {}}, "spec": {"containers": named("a", "b"), "hostNetwork": True}}
    changed = with_container(template, "b", lambda each: {**each, "image": "x"})
    expected = {"containers": [*named("a"), *named("b", image="x")], "hostNetwork": True}
    assert changed == {"metadata": {"labels": {}}, "spec": expected}


def test_fields_that_say_nothing_are_not_set() -> None:
    template = {"spec": {"schedulerName": "mine"}}
    changed = with_spec(template, schedulerName="", nodeSelector={}, affinity=None, priorityClassName="high")
    assert changed == {"spec": {"schedulerName": "mine", "priorityClassName": "high"}}


@pytest.mark.parametrize("template", [{}, {"spec": None}, {"spec": {"containers": None}}])
def test_what_is_null_is_empty(template: dict[str, Any]) -> None:
    assert container_of(spec_of(template), "node") is None
    assert with_container(template, "node")["spec"]["containers"] == [{"name": "node"}]
    assert with_volumes(template, named("a"))["spec"]["volumes"] == named("a")


def test_what_is_given_is_never_changed() -> None:
    template = {"spec": {"containers": [{"name": "node", "env": named("a"), "volumeMounts": [MINE]}], "volumes": []}}
    before = copy.deepcopy(template)
    changed = with_container(template, "node", lambda each: with_mounts(with_env(each, named("b")), [MINE]))
    with_volumes(with_spec(changed, nodeSelector={"a": "b"}), named("c"))
    assert template == before
