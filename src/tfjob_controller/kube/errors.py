"""One exception for all that can go wrong between us and the API server."""

from __future__ import annotations

from collections.abc import Sequence

# No HTTP answer at all: refused, reset, timed out, TLS.
NO_RESPONSE = 0


class ApiError(Exception):
    """The API server refused, or did not answer.

    `status` is the HTTP code, or `NO_RESPONSE`. `reason` is the machine's word (`AlreadyExists`), `message` the
    server's own sentence. `causes` are the `details.causes` of a Status as `(field, message)`, `cause_reasons` their
    reasons. `outcome_unknown` is True when the request may have been carried out although no answer came.
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
    def is_already_exists(self) -> bool:
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_conflict(self) -> bool:
        """Somebody else wrote first: read again. An object that exists already is no conflict."""
        return self.status == 409 and not self.is_already_exists

    @property
    def is_gone(self) -> bool:
        """The version asked for is compacted away: list again."""
        return self.status == 410 or self.reason in ("Expired", "Gone")

    @property
    def is_too_many_requests(self) -> bool:
        return self.status == 429

    @property
    def is_server_error(self) -> bool:
        return self.status >= 500

    @property
    def is_retryable(self) -> bool:
        """Worth the same request again later: overload, faults of the server, no answer."""
        return self.is_no_response or self.is_too_many_requests or self.is_server_error
