"""The rules of errors.py, by the libraries' own errors."""

from __future__ import annotations

import errno
import ssl

import aiohttp
import botocore.exceptions
import gcsfs.retry
import google.auth.exceptions
import httpx
import huggingface_hub.errors
import pytest
from s3fs.errors import translate_boto_error
from yarl import URL

from tfjob_controller.storage.errors import EXIT_PERMANENT, EXIT_TRANSIENT, StorageError, exit_code, explain


def s3_error(status: int, code: str) -> BaseException:
    answer = {"Error": {"Code": code, "Message": f"it said {code}"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    translated: BaseException = translate_boto_error(botocore.exceptions.ClientError(answer, "GetObject"))
    return translated


def web_error(status: int) -> BaseException:
    url = URL("http://host/x?sig=secret")
    request = aiohttp.RequestInfo(url, "GET", None, url)  # type: ignore[arg-type]  # headers are not looked at
    return aiohttp.ClientResponseError(request, (), status=status, message="it said no")


def hub_error(kind: type[huggingface_hub.errors.HfHubHTTPError], status: int) -> BaseException:
    request = httpx.Request("GET", "http://hub/x")
    return kind("it said no", response=httpx.Response(status, request=request))


HUB = huggingface_hub.errors


@pytest.mark.parametrize(
    ("error", "words", "is_transient"),
    [
        pytest.param(s3_error(404, "NoSuchBucket"), "not found (HTTP 404", False, id="S3: no bucket"),
        pytest.param(s3_error(403, "AccessDenied"), "access is denied (HTTP 403", False, id="S3: denied"),
        pytest.param(s3_error(503, "SlowDown"), "HTTP 503", True, id="S3: slow down"),
        pytest.param(botocore.exceptions.NoCredentialsError(), "set AWS_ACCESS_KEY_ID", False, id="S3: no credentials"),
        pytest.param(
            botocore.exceptions.EndpointConnectionError(endpoint_url="http://x"),
            "Could not connect",
            True,
            id="S3: gone",
        ),
        pytest.param(botocore.exceptions.ReadTimeoutError(endpoint_url="http://x"), "timeout", True, id="S3: timeout"),
        pytest.param(web_error(404), "not found (HTTP 404", False, id="web: not found"),
        pytest.param(aiohttp.ClientPayloadError("cut"), "cut", True, id="web: cut"),
        pytest.param(TimeoutError(), "TimeoutError", True, id="timeout"),
        pytest.param(hub_error(HUB.GatedRepoError, 403), "accept the terms on the hub", False, id="hub: gated"),
        pytest.param(hub_error(HUB.RepositoryNotFoundError, 401), "or is private", False, id="hub: no repository"),
        pytest.param(
            hub_error(HUB.RevisionNotFoundError, 404), "the revision does not exist", False, id="hub: revision"
        ),
        pytest.param(hub_error(HUB.HfHubHTTPError, 500), "HTTP 500", True, id="hub: server's error"),
        pytest.param(gcsfs.retry.HttpError({"code": 403, "message": "no"}), "access is denied", False, id="gs: denied"),
        pytest.param(
            google.auth.exceptions.DefaultCredentialsError("none"),
            "GOOGLE_APPLICATION_CREDENTIALS",
            False,
            id="gs: none",
        ),
        pytest.param(OSError(errno.ENOSPC, "No space", "/x"), "the disk is full: /x", False, id="full disk"),
        pytest.param(OSError(errno.EDQUOT, "Quota"), "the disk is full", False, id="quota"),
        pytest.param(PermissionError(errno.EACCES, "denied", "/x"), "/x: denied", False, id="no right to write"),
        pytest.param(ConnectionResetError(errno.ECONNRESET, "reset"), "reset", True, id="reset"),
        pytest.param(ModuleNotFoundError("no", name="s3fs"), "s3fs is missing; in a", False, id="package missing"),
        pytest.param(ValueError("odd"), "ValueError: odd", False, id="a mistake of ours"),
        pytest.param(
            ssl.SSLCertVerificationError(1, "bad certificate"), "certificate is not trusted", False, id="certificate"
        ),
    ],
)
def test_an_error_says_what_is_wrong_and_whether_it_may_pass(
    error: BaseException, words: str, is_transient: bool
) -> None:
    fault = explain(error, "s3://bucket/x")
    assert words in str(fault)
    assert fault.is_transient is is_transient


def test_the_cause_counts_where_the_error_itself_says_nothing() -> None:
    outer = RuntimeError("odd")
    outer.__cause__ = OSError(errno.ENOSPC, "No space", "/x")
    assert "disk is full" in str(explain(outer, "x"))


def test_a_certificate_that_is_not_trusted_is_no_lost_connection() -> None:
    outer = aiohttp.ClientConnectionError("cannot connect")
    outer.__cause__ = ssl.SSLCertVerificationError(1, "self-signed certificate")
    fault = explain(outer, "https://host/x")
    assert "certificate is not trusted" in str(fault)
    assert not fault.is_transient


def test_a_connection_that_was_cut_is_no_answer_of_the_server() -> None:
    """aiohttp's own cause of it carries a code 400, which nobody sent."""
    outer = aiohttp.ClientPayloadError("not all has come")
    outer.__cause__ = aiohttp.http_exceptions.ContentLengthError("3 of 5 bytes")
    assert explain(outer, "https://host/x").is_transient


def test_exit_codes_are_those_that_the_controller_knows() -> None:
    assert exit_code(StorageError("x")) == EXIT_PERMANENT < 128
    # Above what any signal makes, which end at 128 + 64.
    assert 192 < exit_code(StorageError("x", is_transient=True)) == EXIT_TRANSIENT < 255
