"""What kube/http/transport.py sends again, and when."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.http.transport import (
    MAX_DELAY_SECONDS,
    MAX_RETRIES,
    is_outcome_unknown,
    parse_retry_after,
    retry_delay_seconds,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def failed(status: int, retry_after_seconds: float | None = None) -> ApiError:
    return ApiError(status, "", "m", retry_after_seconds=retry_after_seconds)


def rest(error: ApiError, retries: int = 0, repeatable: bool = False, left_seconds: float = 100.0) -> float | None:
    return retry_delay_seconds(error, retries, repeatable=repeatable, left_seconds=left_seconds, jitter=1.0)


@pytest.mark.parametrize(
    ("error", "once", "repeatable"),
    [
        pytest.param(failed(429, 3.0), 3.0, 3.0, id="429 with Retry-After: any request"),
        pytest.param(failed(503, 3.0), 3.0, 3.0, id="503 with Retry-After: any request"),
        pytest.param(failed(429), None, 0.1, id="429 without: what may be repeated"),
        pytest.param(failed(503), None, 0.1, id="503 without: what may be repeated"),
        pytest.param(failed(500, 3.0), None, 0.1, id="500 may come after the write"),
        pytest.param(failed(NO_RESPONSE), None, 0.1, id="no answer"),
        pytest.param(failed(404, 3.0), None, None, id="404 will be the same next time"),
        pytest.param(failed(422), None, None, id="422 will be the same next time"),
    ],
)
def test_the_requests_that_are_retried_and_their_delay(
    error: ApiError, once: float | None, repeatable: float | None
) -> None:
    assert rest(error) == once
    assert rest(error, repeatable=True) == repeatable


def test_the_delay_doubles_up_to_its_cap() -> None:
    assert [rest(failed(500), n, True) for n in range(7)] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


@given(retries=st.integers(0, MAX_RETRIES - 1))
def test_jitter_takes_at_most_half_of_it(retries: int) -> None:
    drawn = retry_delay_seconds(failed(500), retries, repeatable=True, left_seconds=100.0)
    most = rest(failed(500), retries, True)
    assert drawn is not None
    assert most is not None
    assert most / 2 <= drawn <= most <= MAX_DELAY_SECONDS


@pytest.mark.parametrize("error", [failed(429, 0.0), failed(500)])
def test_after_ten_retries_it_is_over(error: ApiError) -> None:
    assert rest(error, MAX_RETRIES - 1, True) is not None
    assert rest(error, MAX_RETRIES, True) is None


def test_a_delay_that_would_outlast_the_call_is_not_begun() -> None:
    assert rest(failed(429, 5.0), left_seconds=5.1) == 5.0
    assert rest(failed(429, 5.0), left_seconds=5.0) is None


@pytest.mark.parametrize(
    ("method", "status", "retry_after_seconds", "unknown"),
    [
        ("POST", 504, None, True),
        ("POST", 500, 2.0, True),
        ("DELETE", 503, None, True),
        ("POST", 503, 1.0, False),
        ("POST", 429, 1.0, False),
        ("PATCH", 409, None, False),
        ("GET", 504, None, False),
    ],
)
def test_a_write_that_met_a_server_error_may_have_been_carried_out(
    method: str, status: int, retry_after_seconds: float | None, unknown: bool
) -> None:
    assert is_outcome_unknown(method, status, retry_after_seconds) is unknown


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        pytest.param("7", 7.0, id="seconds"),
        pytest.param("0", 0.0, id="at once"),
        pytest.param("Thu, 01 Jan 2026 00:00:30 GMT", 30.0, id="a date"),
        pytest.param("Wed, 31 Dec 2025 00:00:00 GMT", 0.0, id="a date that is over"),
        pytest.param("Thu, 01 Jan 2026 00:00:30 -0000", 30.0, id="a date without a zone is UTC"),
        pytest.param("soon", None, id="nonsense"),
        pytest.param("7\x1f", 7.0, id="strange white space"),
        pytest.param("-1", None, id="negative"),
        pytest.param("\u00b2", None, id="a digit that is none"),
        pytest.param("", None, id="empty"),
        pytest.param(None, None, id="no header"),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


@given(value=st.text(max_size=40))
def test_no_header_is_too_strange(value: str) -> None:
    seconds = parse_retry_after(value, NOW)
    assert seconds is None or seconds >= 0
