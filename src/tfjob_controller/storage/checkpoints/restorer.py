"""Restores the newest checkpoint of a storage that is whole.

Theory of operation. The manifests are tried from the newest on. A checkpoint is broken if its manifest cannot be used,
or if a file is missing or has another size or hash than in the manifest; then the previous one is tried. Any other
error, such as missing rights or a full disk, ends the command, because an older checkpoint would not help.

Files are fetched into a hidden folder beside their final place, whose name contains the upload id, so that a restart
continues from there. Once all are verified, the folder is renamed, and last the link is replaced. What the program
finds under the final name is therefore always one whole checkpoint.
"""

from __future__ import annotations

import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import structlog

from tfjob_controller.storage.checkpoints.layout import (
    MANIFESTS,
    MOST_MANIFEST_BYTES,
    ManifestName,
    data_name,
)
from tfjob_controller.storage.checkpoints.manifest import (
    FILE,
    BrokenCheckpointError,
    CheckpointManifest,
    read_manifest,
)
from tfjob_controller.storage.checkpoints.resumelink import RESUME_LINK, STAGING, set_resume_link
from tfjob_controller.storage.checkpoints.store import CheckpointStore, read_small
from tfjob_controller.storage.confined import ConfinedSource
from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import SHA256, Digest, RemoteFile, check_free_space, size_of_folder
from tfjob_controller.storage.folder import FilledFolder
from tfjob_controller.storage.transfer import RetryPolicy, Transfer, TransferProgress
from tfjob_controller.storage.uris import Redactor, StorageUri
from tfjob_controller.storage.workerpool import process_all
from tfjob_controller.util.clock import Clock

# A storage with more broken checkpoints than this is not searched any further.
_MOST_TRIED = 20

_log = structlog.get_logger(__name__)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Skipped:
    """A checkpoint that was not restored, by its name, or that of its manifest if it is not known."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has done; without a manifest there was nothing to restore."""

    manifest: CheckpointManifest | None
    skipped: tuple[Skipped, ...] = ()


@dataclass(slots=True)
class _StoredFiles:
    """One checkpoint in the storage. Implements `sources.Source`."""

    store: CheckpointStore
    manifest: CheckpointManifest
    wrong: list[str] = field(default_factory=list)
    """Files whose content had another hash."""

    def files(self) -> Sequence[RemoteFile]:
        name, upload_id = self.manifest.name, self.manifest.upload_id
        return [
            RemoteFile(
                file.name, data_name(name, upload_id, file.name), file.size, file.sha256, Digest(SHA256, file.sha256)
            )
            for file in self.manifest.files
        ]

    def read(self, file: RemoteFile, offset: int) -> Iterator[bytes]:
        try:
            yield from self.store.read(file.location, offset, file.size)
        except FileNotFoundError:
            raise BrokenCheckpointError(f"{file.name} is missing") from None

    def is_digest_of_content(self, file: RemoteFile) -> bool:
        self.wrong.append(file.name)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Restorer:
    """Restores from one storage into one folder."""

    store: CheckpointStore
    uri: StorageUri
    path: str
    parallel: int
    retries: int
    clock: Clock
    redact: Redactor

    def run(self) -> Restored:
        """Restores the newest whole checkpoint, and sets or removes the link to it. Raises StorageError."""
        Path(self.path).mkdir(parents=True, exist_ok=True)
        skipped: list[Skipped] = []
        tried: set[ManifestName] = set()
        while len(tried) < _MOST_TRIED:
            # Listed again each time: while a checkpoint was read, `keep` may have removed it for a newer one.
            newest = next((manifest for manifest in self._manifests() if manifest not in tried), None)
            if newest is None:
                break
            tried.add(newest)
            name = str(newest)
            try:
                manifest = self._manifest(newest)
                name = manifest.name
                self._restore(manifest)
            except BrokenCheckpointError as problem:
                skipped.append(Skipped(name, self.redact(str(problem))))
                _log.warning("checkpoint is broken and skipped", name=name, reason=skipped[-1].reason)
                continue
            self._set_link(manifest.name)
            return Restored(manifest, tuple(skipped))
        self._remove_link()
        return Restored(None, tuple(skipped))

    def _manifests(self) -> list[ManifestName]:
        files = self._retried(lambda: self.store.listing(MANIFESTS))
        names = (ManifestName.read(file.name) for file in files)
        return sorted((name for name in names if name is not None), reverse=True)

    def _manifest(self, name: ManifestName) -> CheckpointManifest:
        def read() -> bytes:
            try:
                return read_small(self.store, str(name), MOST_MANIFEST_BYTES)
            except FileNotFoundError:
                raise BrokenCheckpointError(f"{name} was removed meanwhile") from None
            except ValueError as error:
                raise BrokenCheckpointError(str(error)) from None

        return read_manifest(self._retried(read), name)

    def _restore(self, manifest: CheckpointManifest) -> None:
        final = Path(self.path, manifest.name)
        if _is_there(final, manifest):
            _log.info("nothing to restore: the folder has the checkpoint", name=manifest.name)
            return
        stored = _StoredFiles(self.store, manifest)
        files = stored.files()
        there = {file.name: file.size for file in self._retried(lambda: self.store.listing(manifest.prefix))}
        for file in files:
            if there.get(file.location) != file.size:
                raise BrokenCheckpointError(f"{file.name} is missing or has another size")
        staging = self._staging(manifest.upload_id)
        try:
            self._fetch(stored, files, staging)
        except StorageError as error:
            if stored.wrong and not error.is_transient:
                shutil.rmtree(staging, ignore_errors=True)
                raise BrokenCheckpointError(f"{stored.wrong[0]} has another hash than in its manifest") from error
            raise
        _move(staging / manifest.name if manifest.kind == FILE else staging, final)
        shutil.rmtree(staging, ignore_errors=True)

    def _fetch(self, stored: _StoredFiles, files: Sequence[RemoteFile], staging: Path) -> None:
        byte_count = stored.manifest.byte_count
        _log.info("restoring", name=stored.manifest.name, files=len(files), bytes=byte_count)
        retry_policy = RetryPolicy(self.retries, self.clock, threading.Event(), self.redact)
        progress = TransferProgress(len(files), byte_count, self.clock)
        with FilledFolder(staging) as folder:
            check_free_space(byte_count - size_of_folder(folder.root), folder.root)
            transfer = Transfer(stored, folder, progress, retry_policy)
            process_all(files, transfer.fetch, parallel=self.parallel, stop=retry_policy.stop, tick=progress.tick)
            folder.finish(self.uri, "checkpoint", files, byte_count)
            folder.unmark()
        _log.info("restored", name=stored.manifest.name, **progress.figures())

    def _staging(self, upload_id: str) -> Path:
        """The folder of partial files; those of other checkpoints are removed."""
        staging = Path(self.path, STAGING + upload_id)
        for other in Path(self.path).glob(f"{STAGING}*"):
            if other != staging or other.is_symlink() or not other.is_dir():
                _remove(other)
        return staging

    def _set_link(self, name: str) -> None:
        link = Path(self.path, RESUME_LINK)
        if link.is_dir() and not link.is_symlink():
            _remove(link)
        root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            set_resume_link(root, name)
        finally:
            os.close(root)

    def _remove_link(self) -> None:
        link = Path(self.path, RESUME_LINK)
        if link.is_symlink():
            link.unlink()

    def _retried(self, work: Callable[[], Answer]) -> Answer:
        found: list[Answer] = []

        def attempt() -> bool:
            found.append(work())
            return True

        RetryPolicy(self.retries, self.clock, threading.Event(), self.redact).try_again(str(self.uri), attempt)
        return found[-1]


def _is_there(path: Path, manifest: CheckpointManifest) -> bool:
    """Whether the checkpoint is there already, with the same hashes."""
    if path.is_symlink() or (manifest.kind == FILE) != path.is_file():
        return False
    try:
        source = ConfinedSource(str(path))
        files = source.files()
        if not manifest.has_same_content({file.name: file.size or 0 for file in files}):
            return False
        hashes = {file.name: file.sha256 for file in manifest.files}
        return all(source.sha256_of(file) == hashes[file.name] for file in files)
    except (StorageError, OSError):
        return False


def _move(source: Path, final: Path) -> None:
    """Renames to the final name; what has this name is replaced."""
    if final.is_dir() and not final.is_symlink():
        aside = final.with_name(f"{STAGING}{secrets.token_hex(8)}")
        final.rename(aside)
        os.replace(source, final)
        _remove(aside)
        return
    if final.is_symlink() or (final.exists() and source.is_dir()):
        final.unlink()
    os.replace(source, final)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
