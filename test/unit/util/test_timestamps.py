"""The rules of util/timestamps.py."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tfjob_controller.util.timestamps import (
    format_micro_time,
    format_time,
    parse_duration,
    parse_time,
    parse_time_or_none,
    seconds_until,
)

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        pytest.param(datetime(2026, 1, 2, 3, 4, 5, 600, UTC), "2026-01-02T03:04:05.000600Z", id="microseconds"),
        pytest.param(datetime(2026, 1, 2, 3, 4, 5, 0, UTC), "2026-01-02T03:04:05.000000Z", id="always six decimals"),
        pytest.param(
            datetime(2026, 1, 2, 3, 0, tzinfo=timezone(timedelta(hours=2))), "2026-01-02T01:00:00.000000Z", id="UTC"
        ),
    ],
)
def test_micro_time(moment: datetime, text: str) -> None:
    assert format_micro_time(moment) == text


def test_a_time_has_whole_seconds_in_utc() -> None:
    assert format_time(MOMENT + timedelta(milliseconds=900)) == "2026-01-02T03:04:05Z"
    assert format_time(MOMENT.astimezone(timezone(timedelta(hours=2)))) == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(
    "text",
    ["2026-01-02T03:04:05Z", "2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05.000000Z", "2026-01-02T03:04:05"],
)
def test_a_parsed_time_has_a_time_zone(text: str) -> None:
    assert parse_time(text) == MOMENT


@pytest.mark.parametrize("text", [None, "yesterday", "2026-13-01T00:00:00Z"])
def test_a_text_that_is_no_time_parses_to_none(text: str | None) -> None:
    assert parse_time_or_none(text) is None


def test_an_invalid_time_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="yesterday"):
        parse_time("yesterday")


def test_seconds_until_a_delay_after_a_time() -> None:
    assert seconds_until("2026-01-02T03:04:05Z", 10.0, MOMENT + timedelta(seconds=4)) == 6.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        ("1h30m", 5400.0),
        ("0.25", 0.25),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_written_as_in_go_or_in_plain_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1d", "1h30", "1e9", "٣s", "9" * 400, "1h" * 400 + "x"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00+23:59", "0999-12-31T23:59:59Z", "9001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59"]
)
def test_a_time_near_the_first_or_last_year_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        parse_time(text)
    with pytest.raises(ValueError, match="not a time"):
        seconds_until(text, 1.0, MOMENT)
    assert parse_time_or_none(text) is None


@pytest.mark.parametrize(
    ("text", "after_seconds"), [("1000-01-02T00:00:00+23:59", -(2.0**63)), ("9000-12-31T23:59:59-23:59", 2.0**63)]
)
def test_no_delay_leads_out_of_the_years_that_exist(text: str, after_seconds: float) -> None:
    assert abs(seconds_until(text, after_seconds, MOMENT)) > 2.0**62
    assert format_time(parse_time(text))


def test_long_texts_are_no_times_and_fill_no_cache() -> None:
    """A time may have any number of digits behind its seconds."""
    tracemalloc.start()
    try:
        for number in range(2000):
            assert parse_time_or_none(f"2026-01-01T00:00:00.{'0' * 30_000}{number}Z") is None
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
    assert parse_time("2026-01-01T00:00:00.123456789+01:00").microsecond == 123456
