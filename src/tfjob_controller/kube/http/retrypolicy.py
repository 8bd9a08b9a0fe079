"""Decides whether and when a failed request is sent again. Pure.

Theory of operation. There are two different permissions. The server may *ask* for a retry: 429 and 503 with
`Retry-After` come from filters that run before the request does (overload, shutdown), so nothing was carried out and
any method may be sent again. Or the request may be *repeatable*: then no response, any 5xx and a bare 429 are retried
as well, with growing delays. A request that is not repeatable and got no response is never sent twice: its outcome is
unknown, and only the caller can find out.

Source: client-go rest/with_retry.go, rest/request.go (checkWait, at most 10 retries), apiserver
pkg/server/filters/{maxinflight,priority-and-fairness,with_retry_after}.go.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tfjob_controller.kube.errors import ApiError

MAX_RETRIES = 10
# The first delay suits a connection that broke by chance, the last one an API server that restarts.
FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 2.0

# With Retry-After, the server sent these before it handled the request.
_NOT_CARRIED_OUT = (429, 503)


def retry_delay_seconds(
    error: ApiError, retries: int, *, repeatable: bool, left_seconds: float, jitter: float | None = None
) -> float | None:
    """The delay before the next attempt, None if there is none.

    `retries` counts those made so far. `left_seconds` is what is left of the call's time: a delay that would use it up
    is not begun, since the present error is better than a time-out. `jitter` from 0 to 1 is random if not given.
    """
    if retries >= MAX_RETRIES:
        return None
    if error.retry_after_seconds is not None and error.status in _NOT_CARRIED_OUT:
        delay_seconds = error.retry_after_seconds
    elif repeatable and error.is_retryable:
        drawn = random.random() if jitter is None else jitter  # noqa: S311 - spreads load, guards nothing
        delay_seconds = min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0**retries) * (0.5 + 0.5 * drawn)
    else:
        return None
    return delay_seconds if delay_seconds < left_seconds else None


def is_outcome_unknown(method: str, status: int, retry_after_seconds: float | None) -> bool:
    """Whether the server may have carried out, or may still carry out, a write with this response.

    A 5xx can come from a proxy that lost the response, from etcd's time-out after the write, or from the API server's
    own time-out while the handler continues.
    """
    return method != "GET" and status >= 500 and not (status == 503 and retry_after_seconds is not None)


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """The seconds of a `Retry-After` header, which has seconds or a date (RFC 9110 10.2.3); None if invalid."""
    if not value:
        return None
    if value.isascii() and value.strip().isdigit():
        return float(value.strip())  # strip knows more white space than float does
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds())
