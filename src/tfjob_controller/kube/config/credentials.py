"""Credentials that stay fresh and are never shown.

Theory of operation. A *source* is a function that reads an `AuthInfo`: from a file that the kubelet rewrites, from an
exec plugin, or from the kubernetes client. `Credentials` keeps the last one for its lifetime and calls the source again
after that, or when the server responded with 401. The thread of the request that needs it calls the source, one thread
at a time; the others wait, since they need the same token. A later failure of a source is logged and the old
credentials stay: they may still be valid, and if they are not, the server responds with 401.

No secret has a repr, and no message contains one.
Source: client-go transport/token_source.go, plugin/pkg/client/auth/exec/exec.go.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tfjob_controller.util.clock import Clock
from tfjob_controller.util.lazylog import get_logger

log = get_logger(__name__)

# The kubelet renews a token when a fifth of its lifetime is left; client-go reads it once a minute too.
TOKEN_FILE_SECONDS = 60.0
# A source that failed, or that returned the same token after a 401, is not called again for this long, so that a
# broken plugin does not run for each request.
RETRY_SECONDS = 10.0
# A token is renewed this long before its end, so that none expires on its way to the server.
EXPIRY_MARGIN_SECONDS = 30.0
# A plugin may ask a person or a remote server, but a request cannot wait forever.
EXEC_TIMEOUT_SECONDS = 60.0

# Characters that a header may contain (RFC 6750 b64token is narrower; some issuers do not comply).
_TOKEN = re.compile(r"[\x21-\x7e]+")


class KubeconfigError(Exception):
    """The configuration is unusable. One line that names the file or plugin and the remedy; never a secret."""


@dataclass(frozen=True, slots=True)
class AuthInfo:
    """The credentials of a request.

    `authorization` is the header's whole value, or None (client certificates). `lifetime_seconds` is how long it may be
    used without reading it again, None forever. `certificate` is a pair of files: the certificate and its key.
    """

    authorization: str | None = field(default=None, repr=False)
    lifetime_seconds: float | None = None
    certificate: tuple[str, str] | None = field(default=None, repr=False)


CredentialSource = Callable[[], AuthInfo]


class Credentials:
    """The present credentials. Thread-safe. Raises `KubeconfigError` if the first reading fails."""

    def __init__(self, source: CredentialSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._secret = source()
        self._fresh_until = self._until(self._secret.lifetime_seconds)
        self._renewed_at = clock.monotonic()
        self.certificate_generation = 0

    @property
    def certificate(self) -> tuple[str, str] | None:
        return self._secret.certificate

    def authorization(self) -> str | None:
        """The header's value, read again after its lifetime."""
        if self._clock.monotonic() >= self._fresh_until:
            with self._lock:
                if self._clock.monotonic() >= self._fresh_until:
                    self._read()
        return self._secret.authorization

    def renew(self, refused: str | None) -> bool:
        """After a 401 to `refused`: whether there are other credentials now. Calls the source if necessary."""
        with self._lock:
            if self._secret.authorization != refused:
                return True
            if self._clock.monotonic() < self._renewed_at + RETRY_SECONDS:
                return False
            generation = self.certificate_generation
            self._read()
            return self._secret.authorization != refused or self.certificate_generation != generation

    def _read(self) -> None:
        self._renewed_at = self._clock.monotonic()
        try:
            secret = self._source()
        except KubeconfigError as error:
            log.warning("credentials not renewed", error=str(error))
            self._fresh_until = self._until(RETRY_SECONDS)
            return
        if secret.certificate != self._secret.certificate:
            self.certificate_generation += 1
        self._secret = secret
        self._fresh_until = self._until(secret.lifetime_seconds)

    def _until(self, lifetime_seconds: float | None) -> float:
        return float("inf") if lifetime_seconds is None else self._clock.monotonic() + lifetime_seconds


def bearer_header(token: str, origin: str) -> str:
    """The header's value for a token; the error for an invalid token names `origin`."""
    if not _TOKEN.fullmatch(token):
        raise KubeconfigError(f"{origin} holds no usable token (it is empty, or has spaces or line breaks in it)")
    return f"Bearer {token}"


def token_file(path: str) -> CredentialSource:
    """A source that reads a token from a file, again each minute."""

    def read() -> AuthInfo:
        try:
            token = Path(path).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise KubeconfigError(f"cannot read the token file {path}: {reason_of(error)}") from None
        return AuthInfo(bearer_header(token, f"the token file {path}"), TOKEN_FILE_SECONDS)

    return read


def exec_plugin(command: str, hint: str, run: Callable[[], Mapping[str, Any]], clock: Clock) -> CredentialSource:
    """A source that runs a credential plugin; `run` starts it and returns the `status` of its ExecCredential.

    `hint` is the kubeconfig's advice on how to install it.
    """
    files = CertificateFiles()
    plugin = _Plugin(command, hint, run)

    def read() -> AuthInfo:
        status = plugin.status()
        try:
            return _secret_of(status, command, files, clock)
        except (TypeError, ValueError, AttributeError):
            raise KubeconfigError(f"the credential plugin {command!r} gave a malformed response") from None

    return read


class _Plugin:
    """Runs a plugin with a time limit. One caller at a time.

    A run that hangs is not killed and no second one is started: the next call waits for the same run.
    """

    def __init__(self, command: str, hint: str, run: Callable[[], Mapping[str, Any]]) -> None:
        self._command = command
        self._tail = f"; {' '.join(hint.split())}" if hint else ""
        self._run = run
        self._under_way: _PluginRun | None = None

    def status(self) -> Mapping[str, Any]:
        """The `status` of its ExecCredential; raises KubeconfigError if there is none in time."""
        under_way = self._under_way = self._under_way or _PluginRun(self._run)
        if not under_way.join(EXEC_TIMEOUT_SECONDS):
            raise self._failed(f"it did not answer within {EXEC_TIMEOUT_SECONDS:.0f} s")
        self._under_way = None
        if under_way.failure:
            raise self._failed(under_way.failure)
        return under_way.answer

    def _failed(self, what: str) -> KubeconfigError:
        return KubeconfigError(f"the credential plugin {self._command!r} failed: {what}{self._tail}")


class _PluginRun:
    """One run, in a thread of its own; `answer` and `failure` are valid once it has ended."""

    def __init__(self, run: Callable[[], Mapping[str, Any]]) -> None:
        self.answer: Mapping[str, Any] = {}
        self.failure = ""
        self._run = run
        self._thread = threading.Thread(target=self._target, name="exec-plugin", daemon=True)
        self._thread.start()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the end of the run; returns False if it continues."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _target(self) -> None:
        try:
            self.answer = self._run()
        # The text of the plugin's own failure is not repeated, since it may contain secrets.
        except Exception as error:
            self.failure = _plugin_failure(error)


def _plugin_failure(error: Exception) -> str:
    if isinstance(error, OSError):
        return reason_of(error)
    returned = re.match(r"exec: process returned (-?\d+)", str(error))
    if returned:
        return f"it ended with exit code {returned[1]} (run it by hand to see why)"
    return "its response is not an ExecCredential of the version that the kubeconfig requests"


def _secret_of(status: Mapping[str, Any], command: str, files: CertificateFiles, clock: Clock) -> AuthInfo:
    lifetime_seconds = _lifetime_seconds(status.get("expirationTimestamp"), clock)
    certificate = None
    if status.get("clientCertificateData") and status.get("clientKeyData"):
        certificate = files.write(str(status["clientCertificateData"]), str(status["clientKeyData"]))
    token = status.get("token")
    if not token and certificate is None:
        raise KubeconfigError(f"the credential plugin {command!r} gave neither a token nor a certificate with its key")
    authorization = bearer_header(str(token), f"the answer of the credential plugin {command!r}") if token else None
    return AuthInfo(authorization, lifetime_seconds, certificate)


def _lifetime_seconds(expiration: str | None, clock: Clock) -> float | None:
    if not expiration:
        return None
    left_seconds = (datetime.fromisoformat(expiration) - clock.now()).total_seconds()
    return max(RETRY_SECONDS, left_seconds - EXPIRY_MARGIN_SECONDS)


class CertificateFiles:
    """Temporary files for certificates given as text, since TLS reads them from files. Deleted at exit."""

    def __init__(self) -> None:
        self._folder = ""
        self._written: dict[tuple[str, str], tuple[str, str]] = {}

    def write(self, certificate: str, key: str) -> tuple[str, str]:
        """The paths of the files, the same for the same content. Only the owner can read them."""
        if not self._folder:
            self._folder = tempfile.mkdtemp(prefix="kube-client-")
            atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        if (certificate, key) not in self._written:
            paths = []
            for content in (certificate, key):
                descriptor, path = tempfile.mkstemp(dir=self._folder)
                with open(descriptor, "w", encoding="ascii") as file:
                    file.write(content)
                paths.append(path)
            self._written = {(certificate, key): (paths[0], paths[1])}
        return self._written[certificate, key]


def reason_of(error: Exception) -> str:
    """Why a file is unusable, without its content."""
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else "it is not text"
