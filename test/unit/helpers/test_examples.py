"""The number of examples follows the profile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from helpers.examples import examples


@pytest.fixture(autouse=True)
def _profile_restored() -> Iterator[None]:
    before = settings.get_current_profile_name()
    yield
    settings.load_profile(before)


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        pytest.param("thorough", {300: 300, 100: 100, 40: 40, 25: 25}, id="thorough: as many as a test names"),
        pytest.param("fast", {300: 90, 100: 30, 40: 30, 25: 25}, id="fast: a share, but never fewer than 30 of them"),
    ],
)
def test_the_profile_decides_how_many_examples_there_are(profile: str, expected: dict[int, int]) -> None:
    settings.load_profile(profile)
    assert {named: examples(named) for named in expected} == expected
    assert settings().deadline is None, "an example's time says what else the machine does"
