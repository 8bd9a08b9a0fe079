"""Patches under a condition: the tree then has both forms."""

from __future__ import annotations

from typing import Any

import pytest

from helmchart.patches import PatchError, apply
from helmchart.tree import Alternatives, Condition

ON = Condition(".Values.on")
OTHER = Condition(".Values.other")
TREE: dict[str, Any] = {"replicas": 2, "args": ["--a"], "containers": [{"name": "one"}, {"name": "two"}]}


def patch(op: str, path: str, value: Any = None) -> dict[str, Any]:
    return {"op": op, "path": path, **({} if value is None else {"value": value})}


@pytest.mark.parametrize(
    ("operation", "key", "always", "conditional"),
    [
        pytest.param(patch("replace", "/replicas", 3), "replicas", 3, Alternatives(((ON, 3),), 2), id="replace"),
        pytest.param(patch("add", "/replicas", 3), "replicas", 3, Alternatives(((ON, 3),), 2), id="add over"),
        pytest.param(patch("add", "/new", "x"), "new", "x", Alternatives(((ON, "x"),)), id="add"),
        pytest.param(
            patch("add", "/args/-", "--b"), "args", ["--a", "--b"], ["--a", Alternatives(((ON, "--b"),))], id="append"
        ),
        pytest.param(patch("remove", "/args"), "args", None, Alternatives(((ON.negated(), ["--a"]),)), id="remove"),
    ],
)
def test_a_patch_holds_always_or_under_a_condition(
    operation: dict[str, Any], key: str, always: Any, conditional: Any
) -> None:
    assert apply(TREE, [operation], None).get(key) == always
    assert apply(TREE, [operation], ON)[key] == conditional


def test_indexes_do_not_count_what_the_condition_has_removed() -> None:
    operations = [patch("remove", "/containers/0"), patch("add", "/containers/0/args", ["--x"])]
    one, two = apply(TREE, operations, ON)["containers"]
    assert one == Alternatives(((ON.negated(), {"name": "one"}),))
    assert two == {"name": "two", "args": Alternatives(((ON, ["--x"]),))}
    # Without that condition both are there.
    with_other = apply({"containers": [one, two]}, [patch("add", "/containers/0/args", [])], OTHER)
    assert "args" in with_other["containers"][0].cases[0][1]


def test_a_later_patch_has_precedence() -> None:
    first = apply(TREE, [patch("replace", "/replicas", 3)], ON)
    assert apply(first, [patch("replace", "/replicas", 4)], OTHER)["replicas"] == Alternatives(((OTHER, 4), (ON, 3)), 2)


def test_the_given_tree_stays_as_it_is() -> None:
    apply(TREE, [patch("add", "/args/-", "--b"), patch("replace", "/replicas", 3)], None)
    assert (TREE["args"], TREE["replicas"]) == (["--a"], 2)


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(patch("test", "/replicas", 3), id="a test that fails"),
        pytest.param(patch("replace", "/new", 1), id="nothing to replace"),
        pytest.param(patch("remove", "/containers/2"), id="no such item"),
        pytest.param(patch("add", "/args/0", "--b"), id="an insertion"),
        pytest.param(patch("move", "/args", "--b"), id="another operation"),
        pytest.param(patch("add", "/new/deep", 1), id="no such place"),
    ],
)
def test_a_patch_that_does_not_fit_is_an_error(operation: dict[str, Any]) -> None:
    with pytest.raises(PatchError):
        apply(TREE, [operation], ON)
