"""What each of the API server's refusals means. The Status bodies are as a real one sends them (test/integration)."""

from __future__ import annotations

import pytest

from tfjob_controller.kube.errors import NO_RESPONSE, ApiError

PREDICATES = (
    "is_no_response",
    "is_unauthorized",
    "is_forbidden",
    "is_not_found",
    "is_already_exists",
    "is_conflict",
    "is_gone",
    "is_too_many_requests",
    "is_server_error",
    "is_retryable",
)


@pytest.mark.parametrize(
    ("error", "true"),
    [
        pytest.param(ApiError(NO_RESPONSE, "Timeout", "m"), {"is_no_response", "is_retryable"}, id="no answer"),
        pytest.param(ApiError(401, "Unauthorized", "m"), {"is_unauthorized"}, id="401"),
        pytest.param(ApiError(403, "Forbidden", "no rights"), {"is_forbidden"}, id="403"),
        pytest.param(
            ApiError(403, "Forbidden", "m", cause_reasons=["NamespaceTerminating"]),
            {"is_forbidden"},
            id="403 namespace",
        ),
        pytest.param(ApiError(404, "NotFound", "m"), {"is_not_found"}, id="404"),
        pytest.param(ApiError(409, "AlreadyExists", "m"), {"is_already_exists"}, id="409 exists"),
        pytest.param(ApiError(409, "Conflict", "m"), {"is_conflict"}, id="409 conflict"),
        pytest.param(ApiError(410, "Expired", "m"), {"is_gone"}, id="410"),
        pytest.param(ApiError(422, "Invalid", "m"), set(), id="422"),
        pytest.param(
            ApiError(429, "TooManyRequests", "m"), {"is_too_many_requests", "is_retryable"}, id="429 is worth a retry"
        ),
        pytest.param(ApiError(504, "Timeout", "m"), {"is_server_error", "is_retryable"}, id="504"),
    ],
)
def test_each_refusal_has_just_its_own_predicates(error: ApiError, true: set[str]) -> None:
    assert {name for name in PREDICATES if getattr(error, name)} == true


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(ApiError(404, "NotFound", 'pods "a" not found'), 'pods "a" not found (404 NotFound)', id="answer"),
        pytest.param(ApiError(NO_RESPONSE, "Timeout", "silent"), "silent (no answer Timeout)", id="no answer"),
        pytest.param(ApiError(502, "", "bad gateway"), "bad gateway (502)", id="no reason"),
    ],
)
def test_the_text_is_the_servers_sentence_with_its_code(error: ApiError, text: str) -> None:
    assert str(error) == text
