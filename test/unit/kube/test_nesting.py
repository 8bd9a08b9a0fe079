"""The rules of kube/nesting.py: no object is too deep to be read."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.runtime import TRAINING_RUNTIMES
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.kube import codec
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.kube.nesting import MAX_LEVELS, is_too_deep, truncate

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[{}]"\\a', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='{["\\', max_size=3), inner, max_size=3)
    ),
)


class Thing(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


def nested(levels: int, inner: bytes = b"1") -> bytes:
    """In arrays and objects by turns; `levels` is even."""
    return b'[{"a":' * (levels // 2) + inner + b"}]" * (levels // 2)


def an_object(levels: int, where: str = "spec") -> bytes:
    return b'{"metadata":{"name":"deep","namespace":"x","resourceVersion":"7"},"%s":%s}' % (
        where.encode(),
        nested(levels),
    )


@pytest.mark.parametrize(
    ("levels", "too_deep"), [(2, False), (MAX_LEVELS, False), (MAX_LEVELS + 2, True), (9_998, True)]
)
def test_what_is_nested_too_deep_is_seen_and_what_was_cut_still_is(levels: int, too_deep: bool) -> None:
    data = nested(levels)
    assert (is_too_deep(data), is_too_deep(truncate(data))) == (too_deep, too_deep)
    json.loads(truncate(data))


def test_only_what_is_too_deep_is_cut() -> None:
    data = b'{"deep":%s,"deep too":%s,"after":[1,"]}"]}' % (nested(2_000), nested(4_000))
    assert json.loads(truncate(data))["after"] == [1, "]}"]
    assert truncate(nested(MAX_LEVELS)) == nested(MAX_LEVELS)


@pytest.mark.parametrize(
    ("inner", "levels"),
    [
        (b",[],11", 2),
        (b",{}", MAX_LEVELS + 2),
        (b',{"":1}', 2),
        (b',"[",[]', MAX_LEVELS + 2),
        (b',"\\\\\\"",[]', MAX_LEVELS + 2),
    ],
    ids=repr,
)
def test_truncating_takes_no_more_than_some_copies_of_the_bytes(inner: bytes, levels: int) -> None:
    data = b"[%s,%s]" % (nested(MAX_LEVELS + 2), nested(levels, b"1" + inner * (1_400_000 // len(inner))))
    tracemalloc.start()
    try:
        truncated = truncate(data)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(data)
    finally:
        tracemalloc.stop()
    assert is_too_deep(truncated)


@pytest.mark.parametrize(
    ("inner", "lists"),
    [(b",[]", 1), (b",{}", 2), (b',"[",[]', 3), pytest.param(b"," + nested(300), 1, id="nested-1"), (b",[]", 3)],
    ids=repr,
)
def test_a_megabyte_has_few_values_to_truncate(inner: bytes, lists: int) -> None:
    many = b"[" * lists + b"1" + inner * (1_400_000 // len(inner)) + b"]" * lists
    data = b"[%s,%s]" % (nested(1_300), nested(MAX_LEVELS, many))
    truncated = truncate(data)
    assert is_too_deep(truncated)
    nulls, most = truncated.count(b"null"), len(data) // 500
    assert nulls <= most
    msgspec.json.decode(truncated)


@pytest.mark.parametrize(("levels", "space"), [(2, 127), (100, 0), (150, 128), (198, 300), (202, 60), (202, 250)])
def test_all_around_what_cannot_be_decoded_stays(levels: int, space: int) -> None:
    values = [
        b'"]"',
        nested(700),
        b'{"]":[1]}',
        nested(100),
        b" " * space + nested(9_000),
        b"[[2]]",
        nested(1_200),
        b"3",
    ]
    truncated = truncate(nested(levels, b"[%s]" % b",".join(values)))
    value = json.loads(truncated)
    for _ in range(levels // 2):
        value = value[0]["a"]
    assert [value[0], value[2], json.dumps(value[3]), value[5], value[7]] == [
        "]",
        {"]": [1]},
        json.dumps(json.loads(values[3])),
        [[2]],
        3,
    ]
    assert truncated.count(b"null") == 3


@given(VALUES)
def test_brackets_and_quotes_in_strings_are_no_levels(value: Any) -> None:
    inner = json.dumps(value).encode()
    whole = nested(MAX_LEVELS - 40, inner)
    beside = json.dumps(["[" * 300, '\\"' * 300]).encode()
    assert json.loads(truncate(b"[%s,%s]" % (beside, whole))) == json.loads(b"[%s,%s]" % (beside, whole))
    assert not is_too_deep(b"[%s,%s]" % (beside, whole))


@pytest.mark.parametrize("data", [b'"' * 4_001 + b"{" * 4_001, b'"\\' * 40_001 + b"[" * 4_001, b"}" * 900 + b"{" * 900])
def test_what_is_no_json_ends_too(data: bytes) -> None:
    """Within the test's own time: nothing here may look again and again at what it has seen."""
    truncate(data)
    is_too_deep(data)


@pytest.mark.parametrize(
    ("decode", "levels"),
    [
        *((TFJOBS.decode, MAX_LEVELS + 2), (TFJOBS.decode, 1_200)),
        *((TRAINJOBS.decode, 9_900), (TRAINING_RUNTIMES.decode, 9_900)),
    ],
)
def test_a_job_that_is_nested_too_deep_is_invalid_however_deep_it_is(decode: Any, levels: int) -> None:
    found = decode(an_object(levels))
    assert (found.metadata.name, found.invalid) == ("deep", f"nested more than {MAX_LEVELS} levels deep")


@pytest.mark.parametrize("where", ["spec", "status", "unheardOf"])
def test_a_list_and_a_watch_go_on_over_an_object_that_is_nested_too_deep(where: str) -> None:
    deep, plain = an_object(9_900, where), an_object(2)
    decode = codec.decoder_for(Thing)
    page = codec.decode_list(b'{"metadata":{"resourceVersion":"9"},"items":[%s,%s]}' % (deep, plain))
    assert [decode(each).metadata.name for each in page.items] == ["deep", "deep"]
    assert page.resource_version == "9"
    event = codec.decode_watch_event(b'{"type":"ADDED","object":%s}' % deep)
    assert decode(event.object).metadata == ObjectMeta("deep", "x", resource_version="7")
    assert decode(deep).metadata.namespace == "x"
    # What surrounds the object counts as levels when the whole response is cut.
    found = [TFJOBS.decode(each).invalid for each in (page.items[0], event.object, deep)]
    assert found == [f"nested more than {MAX_LEVELS} levels deep"] * 3


def test_a_servers_refusal_may_be_nested_too_deep() -> None:
    assert codec.api_error(500, nested(9_000)).status == 500
