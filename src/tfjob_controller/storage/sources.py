"""Sources of files: one interface for all schemes, and the source of `file://` URIs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import RemoteFile, identity_of, is_own
from tfjob_controller.storage.objectstore import read_blocks
from tfjob_controller.storage.uris import StorageUri


class Source(Protocol):
    """A source of files, for several threads. Every method can raise errors of its library: see errors.explain."""

    def files(self) -> Sequence[RemoteFile]:
        """All files below the URI, or the file that it names, without folders. Empty if there is none."""

    def read(self, file: RemoteFile, offset: int) -> Iterator[bytes]:
        """The content from this offset, in blocks of a few megabytes."""

    def is_digest_of_content(self, file: RemoteFile) -> bool:
        """Whether the digest is one of the content; called when the digests differ."""


Environ = Mapping[str, str]


def open_source(uri: StorageUri, environ: Environ) -> Source:
    """The source of a URI. Imports the library of its scheme. Raises ImportError, StorageError."""
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

    return LocalSource(uri.path)


_OPENERS: Mapping[str, Callable[[StorageUri, Environ], Source]] = {
    "s3": _s3,
    "gs": _gs,
    "hf": _hub,
    "http": _web,
    "https": _web,
    "file": _local,
}


_log = structlog.get_logger(__name__)


class LocalSource:
    """All files below a folder, or one file. Links to files are followed; links to folders are skipped with a warning.

    `confined.ConfinedSource` is for folders whose writer is not trusted.
    """

    def __init__(self, path: str) -> None:
        import fsspec

        self._root = path
        self._filesystem = fsspec.filesystem("file")

    def files(self) -> Sequence[RemoteFile]:
        root = Path(self._root)
        if root.is_file():
            return [self._describe(root.name, root)]
        if not root.is_dir():
            raise FileNotFoundError(f"there is no file or folder {self._root}")
        return [self._describe(str(path.relative_to(root)), path) for path in _walk(root)]

    def read(self, file: RemoteFile, offset: int) -> Iterator[bytes]:
        yield from read_blocks(self._filesystem, file, offset)
        if identity_of(os.stat(file.location)) != file.identity:
            raise StorageError(f"{file.location}: the file has changed while it was read", is_transient=True)

    def is_digest_of_content(self, file: RemoteFile) -> bool:
        return True

    def _describe(self, name: str, path: Path) -> RemoteFile:
        status = path.stat()
        return RemoteFile(name, str(path), status.st_size, identity_of(status))


def _walk(root: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise error

    for folder, subfolders, names in os.walk(root, onerror=refuse):
        for name in sorted(subfolders):
            if (link := Path(folder, name)).is_symlink():
                _log.warning("a link to a folder is skipped", link=str(link))
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and not is_own(name):
                yield path
            elif path.is_symlink() and not path.exists():
                _log.warning("a broken link is skipped", link=str(path))
