"""Where files come from: a listing, and the content of each from any byte on. One way in for all schemes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from tfjob_controller.storage.files import RemoteFile
from tfjob_controller.storage.uris import StorageUri


class Source(Protocol):
    """May be used by several threads. Everything may raise whatever its library raises: see errors.explain."""

    def files(self) -> Sequence[RemoteFile]:
        """All files below the URI, or the one that it names; folders are not among them. Empty if there is nothing."""

    def read(self, file: RemoteFile, offset: int) -> Iterator[bytes]:
        """The content from this byte on, in blocks of at most some megabytes."""

    def is_digest_of_content(self, file: RemoteFile) -> bool:
        """Asked when a digest differs: does the source really mean the content by it?"""


Environ = Mapping[str, str]


def open_source(uri: StorageUri, environ: Environ) -> Source:
    """The source of a URI. Its library is imported here. Raises ImportError, StorageError."""
    return _OPENERS[uri.scheme](uri, environ)


def _s3(uri: StorageUri, environ: Environ) -> Source:
    from tfjob_controller.storage.s3 import s3_source

    return s3_source(uri, environ)


def _gs(uri: StorageUri, environ: Environ) -> Source:
    from tfjob_controller.storage.gs import gs_source

    return gs_source(uri, environ)


def _hub(uri: StorageUri, environ: Environ) -> Source:
    from tfjob_controller.storage.hub import HubSource

    return HubSource(uri, environ)


def _web(uri: StorageUri, environ: Environ) -> Source:
    from tfjob_controller.storage.web import WebSource

    return WebSource(uri)


def _local(uri: StorageUri, environ: Environ) -> Source:
    from tfjob_controller.storage.local import LocalSource

    return LocalSource(uri.path)


_OPENERS: Mapping[str, Callable[[StorageUri, Environ], Source]] = {
    "s3": _s3,
    "gs": _gs,
    "hf": _hub,
    "http": _web,
    "https": _web,
    "file": _local,
}
