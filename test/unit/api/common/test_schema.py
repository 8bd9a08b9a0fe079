"""The rules of api/common/schema.py."""

from typing import Annotated, Any

import msgspec
import pytest

from tfjob_controller.api.common.schema import A_NAME, describe, limit_violations, matches


class Leaf(msgspec.Struct, rename="camel"):
    its_name: Annotated[str, describe("A name.", minLength=1, maxLength=5, pattern="^[a-z]+$")]


class Tree(msgspec.Struct, rename="camel"):
    kind: Annotated[str, describe("One of two.", enum=["Oak", "Elm"])] = ""
    owner: Annotated[str, describe("A name.", **A_NAME)] = ""
    height: Annotated[int | None, describe("A height.", format="int32", minimum=1, maximum=9)] = None
    age: Annotated[int, describe("An age.", format="int32")] = 0
    leaf: Annotated[Leaf | None, describe("A leaf.")] = None
    leaves: Annotated[tuple[Leaf, ...], describe("Leaves.", minItems=1, maxItems=2)] = ()
    marks: Annotated[dict[str, str], describe("Marks.", maxProperties=1)] = {}
    free: Any = None


GOOD, SHORT, LONG, ODD = Leaf("abc"), Leaf(""), Leaf("abcdef"), Leaf("ab1")


@pytest.mark.parametrize(
    ("tree", "problems"),
    [
        pytest.param(Tree(), [], id="what is absent is not judged"),
        pytest.param(Tree("Elm", "a.b", 9, -(2**31), GOOD, (GOOD, GOOD), {"a": ""}, object()), [], id="at the limits"),
        pytest.param(Tree("elm"), ["tree.kind: must be one of Oak, Elm, is elm"], id="choice"),
        pytest.param(Tree(height=0), ["tree.height: must be from 1 to 9, is 0"], id="too low"),
        pytest.param(Tree(height=10), ["tree.height: must be from 1 to 9, is 10"], id="too high"),
        pytest.param(
            Tree(age=2**31), [f"tree.age: must be from {-(2**31)} to {2**31 - 1}, is {2**31}"], id="more than 32 bits"
        ),
        pytest.param(Tree(leaf=SHORT), ["tree.leaf.itsName: must not be empty"], id="empty"),
        pytest.param(Tree(leaf=LONG), ["tree.leaf.itsName: must have at most 5 characters, has 6"], id="too long"),
        pytest.param(Tree(leaf=ODD), ["tree.leaf.itsName: must match ^[a-z]+$"], id="pattern without words"),
        pytest.param(
            Tree(owner="a_b"),
            [
                "tree.owner: must be of lower-case letters, digits, - and . and begin and end with a letter or digit",
            ],
            id="pattern with words",
        ),
        pytest.param(
            Tree(leaves=(GOOD, GOOD, SHORT)),
            ["tree.leaves: must have at most 2 entries, has 3", "tree.leaves[2].itsName: must not be empty"],
            id="list, then what is in it",
        ),
        pytest.param(
            Tree(marks={"a": "", "b": ""}), ["tree.marks: must have at most 1 entries, has 2"], id="too many keys"
        ),
    ],
)
def test_each_limit_that_is_not_kept_is_reported_with_its_field(tree: Tree, problems: list[str]) -> None:
    assert list(limit_violations(tree, "tree")) == problems


def test_a_required_list_is_judged_when_it_is_empty() -> None:
    class Bush(msgspec.Struct):
        leaves: Annotated[tuple[Leaf, ...], describe("Leaves.", minItems=1)]

    assert list(limit_violations(Bush(()), "bush")) == ["bush.leaves: at least one entry is required"]


@pytest.mark.parametrize(("value", "found"), [("a", True), ("a\n", False), ("", False)], ids=repr)
def test_the_end_of_a_pattern_is_the_very_end_as_for_the_api_server(value: str, found: bool) -> None:
    assert matches("^[a-z]+$", value) is found
