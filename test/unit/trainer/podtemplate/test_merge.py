"""The rules of trainer/podtemplate/merge.py: what overrides and what completes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tfjob_controller.trainer.podtemplate.merge import (
    complete_items,
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
    ],
)
def test_what_overrides_wins_and_keeps_the_place(first: Any, second: Any, expected: list[Any]) -> None:
    assert override_items(first, second) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(None, [], [], id="nothing"),
        pytest.param(named("a", **OLD), named("a", "b", **NEW), [*named("a", **OLD), *named("b", **NEW)], id="both"),
    ],
)
def test_what_completes_leaves_what_is_there(first: Any, second: Any, expected: list[Any]) -> None:
    assert complete_items(first, second, "name") == expected


@pytest.mark.parametrize(
    ("present", "added", "expected"),
    [
        pytest.param(named("a", value="1"), named("a", value="2"), named("a", value="2"), id="replaced"),
        pytest.param(
            named("a", "b", value="1"),
            named("a", value="$(b)"),
            [*named("b", value="1"), *named("a", value="$(b)")],
            id="at-the-end-where-it-may-use-the-others",
        ),
        pytest.param(None, named("a"), named("a"), id="the-first"),
    ],
)
def test_a_variable_gets_its_new_value_at_the_end(present: Any, added: Any, expected: list[Any]) -> None:
    assert with_env({"name": "c", "env": present}, added)["env"] == expected


def test_a_container_without_variables_gets_no_empty_list() -> None:
    assert with_env({"name": "c"}, []) == {"name": "c"}


MINE = {"name": "mine", "mountPath": "/data"}


def test_a_mount_overrides_what_is_at_its_path_and_a_missing_one_does_not() -> None:
    container = {"name": "c", "volumeMounts": [MINE]}
    other = {"name": "other", "mountPath": "/data"}
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
