"""URIs of datasets and models: their parts, and how URIs and messages are shown without secrets."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus, unquote, urlsplit

from tfjob_controller.storage.errors import StorageError

SCHEMES = ("s3", "gs", "hf", "http", "https", "file", "pvc")
DATASET, MODEL = "dataset", "model"

_HIDDEN = "***"
# An apostrophe can stand in a query. The scheme is left out: a search for it would try each letter of a long text.
_AFTER_SCHEME = re.compile(r"://[^\s\"<>]+")
# scrypt's cost: a guess at a short secret in a query takes some 50 ms.
_SCRYPT_COST = 2**14


@dataclass(frozen=True, slots=True)
class StorageUri:
    """A parsed URI. `text` can contain secrets and is never shown; `str` gives the text without them."""

    text: str = field(repr=False)
    scheme: str
    place: str
    """Bucket, repository (`org/name`), host or claim; empty for files."""
    path: str
    """Key or path within the place, without a slash at either end; the whole path of a file."""
    revision: str = ""
    repository_type: str = ""

    def __str__(self) -> str:
        return redact_urls(self.text)

    @property
    def key(self) -> str:
        """A hash that is equal for equal URIs and reveals no secrets.

        Users and passwords are left out, and a query is hashed slowly.
        """
        head, _, query = self.text.partition("?") if self.scheme in ("http", "https") else (self.text, "", "")
        parts = [_without_user(head), self.repository_type]
        if query:
            parts.append(hashlib.scrypt(query.encode(), salt=head.encode(), n=_SCRYPT_COST, r=8, p=1).hex())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def parse(text: str, what: str = MODEL) -> StorageUri:
    """Read a URI; `what` decides which kind of repository `hf://org/name` is. Raises StorageError."""
    if not text.isascii() and text != text.encode(errors="replace").decode():
        raise StorageError(f"the storage URI {redact_urls(text)!r} is not UTF-8")
    scheme, separator, rest = text.strip().partition("://")
    scheme = scheme.lower()
    if not separator:
        raise StorageError(f"{text!r} is not a storage URI: it must begin with one of {_schemes()}")
    if scheme not in SCHEMES:
        raise StorageError(f"{redact_urls(text)}: the scheme {scheme!r} is unknown: use one of {_schemes()}")
    if scheme == "hf":
        return _hub(text, rest, what)
    if scheme in ("http", "https"):
        return _web(text.strip(), scheme)
    if scheme == "file":
        return _file(text, rest)
    place, _, path = rest.partition("/")
    if not place or "@" in place:
        raise StorageError(
            f"{redact_urls(text)}: a bucket's or claim's name must follow {scheme}://, without any credentials"
        )
    return StorageUri(text.strip(), scheme, place, path.strip("/"))


def redact_urls(text: str) -> str:
    """The text with users, passwords, queries and fragments of all URLs in it hidden."""
    return _AFTER_SCHEME.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    """Returns a URL without secrets. It ends before the punctuation of the sentence around it."""
    url = match[0].rstrip(".,:;)]}'")
    return _redacted(url) + match[0][len(url) :]


def _redacted(url: str) -> str:
    scheme, _, rest = url.partition("://")
    # An s3:// key may contain such characters too; it is then shown shortened, which does no harm.
    shown, mark, _ = _cut(rest)
    authority, slash, path = shown.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}{mark and mark + _HIDDEN}"


def _cut(rest: str) -> tuple[str, str, str]:
    end = min((at for at in (rest.find("?"), rest.find("#")) if at >= 0), default=len(rest))
    return rest[:end], rest[end : end + 1], rest[end + 1 :]


def _without_user(url: str) -> str:
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    # hf://org/name@revision: only what comes before the first slash can be a user.
    return f"{scheme}://{authority.rpartition('@')[2] if scheme in ('http', 'https') else authority}{slash}{path}"


def _schemes() -> str:
    return ", ".join(f"{scheme}://" for scheme in SCHEMES)


def _hub(text: str, rest: str, what: str) -> StorageUri:
    segments = [segment for segment in rest.split("/") if segment]
    kind = what
    if segments and segments[0] in ("datasets", "models") and len(segments) > 1:
        kind = segments.pop(0).removesuffix("s")
    # Some old models have no organisation.
    names, inside = segments[:2], segments[2:]
    repository, _, revision = "/".join(names).partition("@")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", repository):
        raise StorageError(f"{redact_urls(text)}: write hf://organisation/name, or hf://organisation/name@revision")
    if "@" in "/".join(names) and not revision:
        raise StorageError(f"{redact_urls(text)}: a branch, tag or commit must follow the @")
    return StorageUri(text.strip(), "hf", repository, "/".join(inside), unquote(revision), kind)


def _web(text: str, scheme: str) -> StorageUri:
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        host = None
    if not host:
        raise StorageError(f"{redact_urls(text)}: a host must follow {scheme}://")
    if parts.path.endswith("/") or not parts.path:
        raise StorageError(f"{redact_urls(text)}: it must name a file; a web server's folders cannot be listed")
    return StorageUri(text, scheme, host, parts.path.strip("/"))


def _file(text: str, rest: str) -> StorageUri:
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash or not path.strip("/"):
        raise StorageError(f"{redact_urls(text)}: write file:///an/absolute/path")
    return StorageUri(text.strip(), "file", "", "/" + unquote(path).strip("/"))


# Variables whose name contains one of these words are secret: those of the libraries, and usual names of users.
_SECRET_NAME = re.compile(
    r"KEY|SECRET|TOKEN|PASS|PWD|PSW|CRED|AUTH|SIGN|SAS|PRIVATE|SESSION|COOKIE|CONN|DSN", re.IGNORECASE
)
# The value of such a variable is a path, which is shown because it explains an error.
_PATH_NAME = re.compile(r"(_FILE|_PATH|_DIR|_HOME|^GOOGLE_APPLICATION_CREDENTIALS|^(OLD)?PWD)$", re.IGNORECASE)
# Shorter values are ordinary words rather than secrets.
_SHORTEST = 6
# The kubelet keeps the last 2,048 bytes of a log as the termination message.
_LONGEST_LINE = 1000


class Redactor:
    """Replaces the values of secret environment variables in messages."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        secrets = {
            shown
            for name, value in environ.items()
            if _SECRET_NAME.search(name) and not _PATH_NAME.search(name)
            for shown in _forms_of(value)
            if len(shown) >= _SHORTEST
        }
        # The longest first, since one secret can contain another.
        self._secrets = sorted(secrets, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text as one line of bounded length, without secrets."""
        line = redact_urls(" ".join(text.split()))
        for secret in self._secrets:
            line = line.replace(secret, _HIDDEN)
        line = line.encode("utf-8", "backslashreplace").decode()
        return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"


def _forms_of(value: str) -> Iterator[str]:
    """Yields the forms that a value may have in a message: in one line, line by line, escaped, and quoted in a URL."""
    lines = [" ".join(line.split()) for line in value.splitlines()]
    yield " ".join(value.split())
    yield from lines
    yield repr(value)[1:-1]
    yield quote(value.strip(), safe="")
    yield quote_plus(value.strip())
