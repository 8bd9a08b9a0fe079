"""CRDs as a whole: names, versions, subresources; and what is written down as deliberate."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from release.crds import Incompatibility, incompatibilities, judge

Object = dict[str, Any]
NAME = "things.example.com"

OLD: Object = {
    "metadata": {"name": NAME},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "things",
            "singular": "thing",
            "kind": "Thing",
            "listKind": "ThingList",
            "shortNames": ["th"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.a"}},
                "selectableFields": [{"jsonPath": ".spec.a"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
            }
        ],
    },
}

Change = Callable[[Object], Any]


def version(spec: Object) -> Object:
    found: Object = spec["versions"][0]
    return found


CHANGES: dict[str, tuple[Change, str, str, str]] = {
    "scope": (lambda spec: spec.update(scope="Cluster"), "", "", "scope"),
    "kind": (lambda spec: spec["names"].update(kind="Other"), "", "", "names"),
    "short name": (lambda spec: spec["names"].update(shortNames=[]), "", "", "names"),
    "version": (lambda spec: version(spec).update(name="v2"), "v1", "", "removed"),
    "served": (lambda spec: version(spec).update(served=False), "v1", "", "served"),
    "subresource": (lambda spec: version(spec)["subresources"].pop("status"), "v1", "", "subresource"),
    "scale": (lambda spec: version(spec)["subresources"]["scale"].clear(), "v1", "", "subresource"),
    "selectable": (lambda spec: version(spec).pop("selectableFields"), "v1", "", "selectable field"),
    "schema": (
        lambda spec: version(spec)["schema"]["openAPIV3Schema"]["properties"].pop("spec"),
        "v1",
        "spec",
        "removed",
    ),
}


def changed(change: Change) -> Object:
    crd = copy.deepcopy(OLD)
    change(crd["spec"])
    return crd


@pytest.mark.parametrize(("change", "of_version", "path", "rule"), CHANGES.values(), ids=CHANGES)
def test_each_of_these_changes_breaks_users_of_the_release(
    change: Change, of_version: str, path: str, rule: str
) -> None:
    (found,) = incompatibilities([OLD], [changed(change)])
    assert (found.crd, found.version, found.path, found.rule) == (NAME, of_version, path, rule)


def test_a_kind_that_is_gone_breaks() -> None:
    assert [each.rule for each in incompatibilities([OLD], [])] == ["removed"]


def test_new_kinds_versions_columns_and_subresources_break_nothing() -> None:
    def change(spec: Object) -> None:
        spec["versions"].append({**copy.deepcopy(version(spec)), "name": "v2", "storage": False})
        version(spec)["additionalPrinterColumns"] = [{"name": "A"}]
        version(spec)["deprecated"] = True

    other = {**copy.deepcopy(OLD), "metadata": {"name": "others.example.com"}}
    assert list(incompatibilities([OLD], [changed(change), other])) == []


FOUND = Incompatibility(NAME, "v1", "spec.a", "bounds", "maximum was 9, is 8")
WANTED = Incompatibility(NAME, "v1", "spec.a", "bounds", "nobody can have used more")


def test_an_incompatibility_that_is_recorded_with_a_reason_is_accepted() -> None:
    verdict = judge([FOUND], [WANTED])
    assert (verdict.unwanted, verdict.needless) == ((), ())


def test_an_exception_excuses_its_own_place_and_rule_alone() -> None:
    other = Incompatibility(NAME, "v1", "spec.a", "pattern", "was ^a, is ^b")
    assert judge([FOUND, other], [WANTED]).unwanted == (other,)


def test_an_exception_without_a_match_is_reported() -> None:
    assert judge([], [WANTED]).needless == (WANTED,)


def test_a_break_says_in_one_line_where_and_why() -> None:
    assert str(FOUND) == "things.example.com v1 spec.a: bounds: maximum was 9, is 8"
