"""Lists of objects that a key identifies."""

from __future__ import annotations

from typing import Any

import pytest

from tfjob_controller.util.keyedlists import complete_items, normal_path

OLD, NEW = {"name": "a", "from": "old"}, {"name": "a", "from": "new"}
OTHER = {"name": "b"}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(None, [], [], id="nothing"),
        pytest.param([OLD], [NEW, OTHER], [OLD, OTHER], id="both"),
    ],
)
def test_what_completes_leaves_what_is_there(first: Any, second: Any, expected: list[Any]) -> None:
    assert complete_items(first, second, "name") == expected


@pytest.mark.parametrize("path", ["/a/b/", "/a//b", "/a/c/../b", "a/b"])
def test_a_path_has_one_form_to_compare(path: str) -> None:
    assert normal_path(path) == "/a/b"


@pytest.mark.parametrize("path", ["/", ""])
def test_the_root_is_a_path(path: str) -> None:
    assert normal_path(path) == "/"
