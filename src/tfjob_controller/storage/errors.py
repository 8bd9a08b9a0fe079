"""Explains errors in one line, and determines whether a retry can help.

Theory of operation. Five libraries raise five families of errors, wrapped in each other. `explain` walks from an error
to its causes and takes the first one that explains the failure: a full disk, an HTTP status, a name such as
NoCredentialsError. Classes are recognized by their names, so nothing here imports a library that may not be installed.

Exit codes are the controller's: 1 to 127 mean a permanent error, 128 to 255 a transient one.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Iterator

from tfjob_controller.util.commandline import install_hint

EXIT_PERMANENT = 1
EXIT_USAGE = 2
# 128 plus EX_TEMPFAIL of sysexits.h, which is above the codes of processes that a signal ended (129 to 192).
EXIT_TRANSIENT = 128 + 75
EXIT_STOPPED = 128 + 15

_FULL = (errno.ENOSPC, errno.EDQUOT)
_LOCAL = (
    errno.ENOENT,
    errno.EEXIST,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ELOOP,
)
_TRANSIENT_STATUSES = (408, 425, 429)
_NAMED = {
    "GatedRepoError": "access is denied: accept the terms on the hub, and set HF_TOKEN of that account",
    "RepositoryNotFoundError": "the repository does not exist, or is private and HF_TOKEN may not read it",
    "RevisionNotFoundError": "the revision does not exist",
    "NoCredentialsError": "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "PartialCredentialsError": "half of the credentials is missing: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "DefaultCredentialsError": "there are no usable credentials: set GOOGLE_APPLICATION_CREDENTIALS",
    "RefreshError": "access is denied: Google rejected the credentials",
}
# Names of aiohttp, httpx, botocore and fsspec; Python's own errors of this kind are OSErrors.
_TRANSIENT_NAMES = {
    "ClientError",
    "TransportError",
    "ConnectionError",
    "HTTPClientError",
    "IncompleteRead",
    "FileExpired",
    "ChecksumError",
}


class StorageError(Exception):
    """One line for people, without secrets. `is_transient` means that a later attempt can succeed."""

    def __init__(self, message: str, *, is_transient: bool = False) -> None:
        super().__init__(message)
        self.is_transient = is_transient


class Stopped(BaseException):
    """Raised on SIGTERM or SIGINT; only the command itself catches it."""


def exit_code(error: StorageError) -> int:
    return EXIT_TRANSIENT if error.is_transient else EXIT_PERMANENT


def explain(error: BaseException, where: object) -> StorageError:
    """Explains an error at `where`, a URI or path without secrets. The message must still be redacted."""
    if isinstance(error, StorageError):
        return error
    for cause in _chain(error):
        known = _known(cause, where)
        if known is not None:
            return known
    message = _text_of(error)
    if any(_names(cause) & _TRANSIENT_NAMES for cause in _chain(error)):
        return StorageError(f"{where}: {message}", is_transient=True)
    if isinstance(error, FileNotFoundError):
        return StorageError(f"{where}: not found ({message})")
    if isinstance(error, PermissionError):
        return StorageError(f"{where}: access is denied ({message})")
    is_transient = isinstance(error, (OSError, EOFError, asyncio.TimeoutError))
    return StorageError(f"{where}: {message}", is_transient=is_transient)


def _chain(error: BaseException) -> Iterator[BaseException]:
    ids: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in ids:
        ids.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _known(error: BaseException, where: object) -> StorageError | None:
    """Explains one error without its causes; None if it is unknown."""
    if isinstance(error, ImportError):
        missing = getattr(error, "name", None) or error
        return StorageError(f"{where}: the package {missing} is missing; {install_hint('storage')}")
    if isinstance(error, OSError) and error.errno in _FULL:
        return StorageError(f"the disk is full: {_file_of(error)} cannot be written")
    # s3fs raises such errors for objects, too, but their names do not begin with a slash.
    if isinstance(error, OSError) and error.errno in _LOCAL and str(error.filename).startswith("/"):
        return StorageError(f"{error.filename}: {error.strerror}")
    if isinstance(error, ssl.SSLCertVerificationError):
        return StorageError(
            f"{where}: the server's certificate is not trusted ({getattr(error, 'verify_message', error)})"
        )
    for name, meaning in _NAMED.items():
        if name in _names(error):
            return StorageError(f"{where}: {meaning}")
    status = _http_status(error)
    return _by_status(status, error, where) if status is not None else None


def _names(error: BaseException) -> set[str]:
    return {base.__name__ for base in type(error).__mro__}


def _file_of(error: OSError) -> str:
    return str(error.filename) if error.filename is not None else "the target"


def _http_status(error: BaseException) -> int | None:
    """The HTTP status of an error of botocore, gcsfs, aiohttp, httpx or the hub; tried in this order."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    elif "HttpError" in _names(error):
        # Other errors have a `code` too: aiohttp reports a broken connection as 400.
        status = getattr(error, "code", None)
    else:
        status = getattr(error, "status", None) or getattr(response, "status_code", None)
    return int(status) if isinstance(status, int) or (isinstance(status, str) and status.isdecimal()) else None


def _by_status(status: int, error: BaseException, where: object) -> StorageError:
    message = f"HTTP {status}: {_text_of(error)}"
    if status in (401, 403):
        return StorageError(f"{where}: access is denied ({message})")
    if status in (404, 410):
        return StorageError(f"{where}: not found ({message})")
    if status == 412:
        return StorageError(f"{where}: the file has changed while it was read ({message})", is_transient=True)
    return StorageError(f"{where}: {message}", is_transient=status >= 500 or status in _TRANSIENT_STATUSES)


def _text_of(error: BaseException) -> str:
    """The message of an error on one line, or the name of its class."""
    text = " ".join(str(getattr(error, "message", "") or error).split())
    name = type(error).__name__
    if not text:
        return name
    return text if isinstance(error, OSError) or name in text else f"{name}: {text}"
