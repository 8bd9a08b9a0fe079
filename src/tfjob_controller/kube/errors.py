"""The error of a failed API request."""

from __future__ import annotations

from collections.abc import Sequence

# No HTTP answer at all: refused, reset, timed out, TLS.
NO_RESPONSE = 0
# Reasons of errors of the transport. No connection could be opened, through a proxy or without one.
NOT_CONNECTED, PROXY_NOT_CONNECTED = "NotConnected", "ProxyNotConnected"
# It has a bound for responses.
RESPONSE_TOO_LARGE = "ResponseTooLarge"
NOT_FOUND_REASON = "NotFound"


class ApiError(Exception):
    """The API server refused a request or did not respond.

    `status` is the HTTP code, or `NO_RESPONSE`; `reason` is machine-readable (`AlreadyExists`), `message` is the
    server's text. `causes` are the `details.causes` of a Status as `(field, message)`, `cause_reasons` their reasons.
    `outcome_unknown`: the request may have been carried out although it failed.
    Source: apimachinery pkg/api/errors.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        causes: Sequence[tuple[str, str]] = (),
        cause_reasons: Sequence[str] = (),
        retry_after_seconds: float | None = None,
        outcome_unknown: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = tuple(causes)
        self.cause_reasons = tuple(cause_reasons)
        self.retry_after_seconds = retry_after_seconds
        self.outcome_unknown = outcome_unknown

    def __str__(self) -> str:
        code = f"{self.status or 'no answer'} {self.reason}".strip()
        return f"{self.message} ({code})"

    @property
    def is_no_response(self) -> bool:
        return self.status == NO_RESPONSE

    @property
    def is_unauthorized(self) -> bool:
        return self.status == 401

    @property
    def is_forbidden(self) -> bool:
        return self.status == 403

    @property
    def is_not_found(self) -> bool:
        return self.status == 404

    @property
    def is_unknown_kind(self) -> bool:
        """The cluster does not know the kind. If it does, the message quotes the name of the missing object."""
        return self.is_not_found and not (self.reason == NOT_FOUND_REASON and '"' in self.message)

    @property
    def is_already_exists(self) -> bool:
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_conflict(self) -> bool:
        """The object has changed: read it again. An object that already exists is not a conflict."""
        return self.status == 409 and not self.is_already_exists

    @property
    def is_gone(self) -> bool:
        """The requested version was compacted: list again."""
        return self.status == 410 or self.reason in ("Expired", "Gone")

    @property
    def is_too_many_requests(self) -> bool:
        return self.status == 429

    @property
    def is_server_error(self) -> bool:
        return self.status >= 500

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed later: overload, server errors, no response."""
        return self.is_no_response or self.is_too_many_requests or self.is_server_error
