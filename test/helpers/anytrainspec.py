"""Specs of TrainJobs and runtimes for property tests: random ones, and valid ones with unusual parts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from helpers.anyspec import anything, with_odd_part
from helpers.goodtrainmanifests import GOOD_RUNTIMES, GOOD_TRAINJOBS
from tfjob_controller.api.trainjob.types import ROLES

# Values that are valid in some fields, but not in all.
words = st.sampled_from(
    [*ROLES, "torch", "RANK", "A", "auto", "gpu", "4", "-1", "500m", "a b", "a\n", "X", "Wait", "TrainingRuntime"]
)
uris = st.sampled_from(
    [
        "s3://a",
        "s3://",
        "hf://a/b@c",
        "http://u@h",
        "http://h/x@y",
        "file:///",
        "file:///a",
        "pvc://c",
        "ftp://a",
        "a:b@c",
    ]
)
numbers = st.integers(-2, 1025) | st.sampled_from([2**31 - 1, 2**31, 0.5])
parts = words | uris | numbers | anything | st.lists(words, max_size=3) | st.dictionaries(words, words, max_size=2)


def _odd(good: list[dict[str, Any]]) -> st.SearchStrategy[Any]:
    """Returns one of these specs, unchanged or with one unusual part."""
    ways = st.lists(st.integers(0, 9), min_size=1, max_size=7)
    return st.builds(with_odd_part, st.sampled_from(good), ways, parts) | st.sampled_from(good)


def _filled(value: Any) -> Any:
    """Removes empty texts: the controller treats them as absent fields, with fewer rules than the server."""
    if isinstance(value, dict):
        return {name: _filled(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each) for each in value]
    return value if value != "" else "x"


train_specs = anything | _odd([_filled(each.manifest["spec"]) for each in GOOD_TRAINJOBS])
runtime_specs = anything | _odd([_filled(each.manifest["spec"]) for each in GOOD_RUNTIMES])
