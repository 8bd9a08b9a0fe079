"""The rules of util/durations.py."""

from __future__ import annotations

import pytest

from tfjob_controller.util.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        ("1h30m", 5400.0),
        ("1m30s500ms", 90.5),
        ("20", 20.0),
        ("0.25", 0.25),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_written_as_in_go_or_in_plain_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "1d", "-1s", "1 s", "1h30", "1e9", "٣s", "9" * 400, "1h" * 400 + "x"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)
