"""The rules of kube/codec.py: a patch is small, and applied it gives the new status."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.memoryapi import merged
from tfjob_controller.api.tfjob.status import ReplicaStatus, TFJobStatus
from tfjob_controller.kube.codec import merge_patch, status_patch

# Null cannot be a value in a merge patch, and the API drops it anyway.
VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@given(old=OBJECTS, new=OBJECTS)
def test_a_patch_turns_old_into_new(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert merged(old, merge_patch(old, new)) == new


@given(same=OBJECTS)
def test_nothing_is_said_of_what_is_the_same(same: dict[str, Any]) -> None:
    assert merge_patch(same, same) == {}


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": 3}, id="only what differs"),
        pytest.param({"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}, {"a": {"y": None}}, id="a key of a map goes"),
        pytest.param({"a": [1, 2]}, {"a": [1, 3]}, {"a": [1, 3]}, id="lists go as a whole"),
        pytest.param({"a": 1}, {}, {"a": None}, id="a field goes"),
    ],
)
def test_patches(old: dict[str, Any], new: dict[str, Any], patch: dict[str, Any]) -> None:
    assert merge_patch(old, new) == patch


def test_a_status_is_only_written_over_the_version_that_was_seen() -> None:
    replicas = (ReplicaStatus("WORKER", "Running", {"Running": 1}),)
    old = TFJobStatus("Creating", "Unknown", "waiting", replica_statuses=replicas)
    new = TFJobStatus("Running", "Running", "", replica_statuses=replicas)
    assert status_patch(old, new, "77") == {
        "metadata": {"resourceVersion": "77"},
        "status": {"phase": "Running", "state": "Running", "reason": None},
    }
