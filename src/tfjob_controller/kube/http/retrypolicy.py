"""Is this failed request sent again, and when? Pure.

Theory of operation. Two different permissions. The server may *ask* for it: 429 and 503 with `Retry-After` come from
filters that run before the request does (overload, shutdown), so nothing was carried out and any method may go again.
Or the request may be *repeatable*: then no answer, any 5xx and a bare 429 are tried again too, with a growing rest. A
request that is not repeatable and got no answer is never sent twice: its outcome is unknown, and only the caller can
look.

Source: client-go rest/with_retry.go, rest/request.go (checkWait, at most 10 retries), apiserver
pkg/server/filters/{maxinflight,priority-and-fairness,with_retry_after}.go.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tfjob_controller.kube.errors import ApiError

MAX_RETRIES = 10
# The first rest is long enough for a connection that broke by chance, the last for an apiserver that restarts.
FIRST_REST_SECONDS = 0.1
MAX_REST_SECONDS = 2.0

# Said by a server before it looked at the request, if Retry-After comes with it.
_NOT_CARRIED_OUT = (429, 503)


def retry_delay_seconds(
    error: ApiError, retries: int, *, repeatable: bool, left_seconds: float, jitter: float | None = None
) -> float | None:
    """How long to rest before the next attempt, None if there is none.

    `retries` counts those made so far, `left_seconds` is the rest of the call's time: a rest that would use it up is
    not begun, since the answer in hand is better than a time-out. `jitter` from 0 to 1 is drawn if not given.
    """
    if retries >= MAX_RETRIES:
        return None
    if error.retry_after_seconds is not None and error.status in _NOT_CARRIED_OUT:
        rest_seconds = error.retry_after_seconds
    elif repeatable and error.is_retryable:
        drawn = random.random() if jitter is None else jitter  # noqa: S311 - spreads load, guards nothing
        rest_seconds = min(MAX_REST_SECONDS, FIRST_REST_SECONDS * 2.0**retries) * (0.5 + 0.5 * drawn)
    else:
        return None
    return rest_seconds if rest_seconds < left_seconds else None


def is_outcome_unknown(method: str, status: int, retry_after_seconds: float | None) -> bool:
    """May the server have carried out, or still carry out, a write that it answered so?

    A 5xx can come from a proxy that lost the answer, from etcd's time-out after the write, from the apiserver's own
    time-out while the handler goes on.
    """
    return method != "GET" and status >= 500 and not (status == 503 and retry_after_seconds is not None)


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds from a `Retry-After` header, which holds seconds or a date (RFC 9110 10.2.3).

    None for none or nonsense.
    """
    if not value:
        return None
    if value.isascii() and value.strip().isdigit():
        return float(value.strip())  # strip knows more white space than float does
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds())
