"""Uploads complete checkpoints, and removes old ones and what failed uploads have left.

Theory of operation. The files of a checkpoint are uploaded under a new upload id, and hashed while they are read. Then
the checkpoint is scanned again, the stored sizes are listed, and only if both are as expected the manifest is written.
A checkpoint that has changed meanwhile is dropped; it is a candidate again when it has settled. A kill at any point
leaves files without a manifest, which no restore looks at.

Which of several candidates are uploaded decides their order for a restore, so an older one must not be uploaded after a
newer one. Candidates that the folder held when the sidecar started may have been restored or saved before: the newest
one that the storage has ends the search, and what is older than it is not uploaded.

Removal begins with the manifest. Files without a manifest may belong to an upload that is under way, so they are
removed only if the newest of that upload is older than the newest file in the storage by `leftover_age`, both by the
clock of the storage.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

import structlog

from tfjob_controller.storage.checkpoints.bandwidth import Bandwidth
from tfjob_controller.storage.checkpoints.layout import (
    DATA,
    MANIFESTS,
    MOST_MANIFEST_BYTES,
    ManifestName,
    data_name,
    data_prefix,
    step_of,
    upload_of,
)
from tfjob_controller.storage.checkpoints.manifest import (
    FILE,
    FOLDER,
    BrokenCheckpointError,
    CheckpointFile,
    CheckpointManifest,
    Kind,
    read_manifest,
)
from tfjob_controller.storage.checkpoints.report import UploadReport, Wanted
from tfjob_controller.storage.checkpoints.store import CheckpointStore, StoredFile, read_small
from tfjob_controller.storage.checkpoints.watcher import open_root, scan_checkpoint
from tfjob_controller.storage.confined import ConfinedSource
from tfjob_controller.storage.errors import StorageError, explain
from tfjob_controller.storage.files import RemoteFile, checked_name
from tfjob_controller.storage.transfer import Cancelled, RetryPolicy
from tfjob_controller.storage.uris import Redactor
from tfjob_controller.storage.workerpool import process_all
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.timestamps import format_time

_log = structlog.get_logger(__name__)


class SourceChanged(BaseException):
    """Raised when a checkpoint changes while it is read. A BaseException, so that no retry catches it."""


class UnusableCheckpointError(Exception):
    """A checkpoint that cannot be uploaded as it is; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploader:
    """Uploads from one folder to one storage. For one thread; several processes may use the same storage."""

    store: CheckpointStore
    where: str
    """The storage, without secrets: the beginning of reported URIs."""
    path: str
    keep: int
    node: int
    parallel: int
    retries: int
    bandwidth: Bandwidth
    clock: Clock
    redact: Redactor
    report: Callable[[UploadReport], None]
    leftover_age: timedelta = timedelta(hours=1)
    """The age at which files without a manifest are removed."""
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, candidates: list[Wanted], leftovers: Iterable[str] = ()) -> None:
        """Uploads what has to be uploaded of these candidates, the oldest first; reports what happened to each.

        Errors of the storage end the run with a report. `leftovers` are ids of own uploads that have failed.
        """
        failing = candidates[-1].name if candidates else ""
        try:
            for wanted in self._to_upload(candidates):
                failing = wanted.name
                self._try_to_save(wanted)
        except Exception as error:
            self._report_failure("failed", failing, error)
            return
        try:
            self._clean_up(frozenset(leftovers))
        except Exception as error:
            self._report_failure("uncleaned", "", error)

    def _try_to_save(self, wanted: Wanted) -> None:
        """A permanent error may be that of one checkpoint: it must not keep the next one from being saved."""
        try:
            self._save(wanted)
        except Exception as error:
            if explain(error, self.where).is_transient:
                raise
            self._report_failure("failed", wanted.name, error)

    def _report_failure(self, outcome: Literal["failed", "uncleaned"], name: str, error: Exception) -> None:
        fault = explain(error, self.where)
        self.report(UploadReport(outcome, name, reason=self.redact(str(fault)), is_transient=fault.is_transient))

    def _to_upload(self, candidates: list[Wanted]) -> list[Wanted]:
        """Reports those that need no upload; returns the others."""
        chosen: list[Wanted] = []
        is_older = False
        stored = self._uploads() if any(candidate.is_from_start for candidate in candidates) else {}
        for candidate in reversed(candidates):
            if (candidate.is_from_start and is_older) or len(chosen) >= self.keep:
                self.report(UploadReport("superseded", candidate.name, candidate.fingerprint))
            elif candidate.is_from_start and self._is_stored(candidate, stored):
                is_older = True
                self.report(UploadReport("unchanged", candidate.name, candidate.fingerprint))
            else:
                chosen.append(candidate)
        return chosen[::-1]

    def _uploads(self) -> dict[str, ManifestName]:
        return {manifest.upload_id: manifest for manifest in self._manifests()}

    def _manifests(self) -> list[ManifestName]:
        """Of all complete checkpoints, the newest first."""
        names = (ManifestName.read(file.name) for file in self._listing(MANIFESTS))
        return sorted((name for name in names if name is not None), reverse=True)

    def _listing(self, prefix: str) -> list[StoredFile]:
        found: list[StoredFile] = []

        def attempt() -> bool:
            found[:] = self.store.listing(prefix)
            return True

        self._try_again(self.where, attempt)
        return found

    def _is_stored(self, wanted: Wanted, stored: dict[str, ManifestName]) -> bool:
        """Whether the newest checkpoint of this name in the storage has the same content."""
        above = data_prefix(wanted.name, "").removesuffix("/")
        ids = {upload[1] for file in self._listing(above) if (upload := upload_of(file.name)) is not None}
        names = sorted((stored[each] for each in ids if each in stored), reverse=True)
        if not names:
            return False
        try:
            content = read_small(self.store, str(names[0]), MOST_MANIFEST_BYTES)
            manifest = read_manifest(content, names[0])
            source = ConfinedSource(os.path.join(self.path, wanted.name))
            files = source.files()
        except (BrokenCheckpointError, StorageError, FileNotFoundError, ValueError):
            return False
        if not manifest.has_same_content({file.name: file.size or 0 for file in files}):
            return False
        hashes = {file.name: file.sha256 for file in manifest.files}
        try:
            return all(source.sha256_of(file) == hashes[file.name] for file in files)
        except (StorageError, OSError):
            return False

    def _save(self, wanted: Wanted) -> None:
        started = self.clock.monotonic()
        upload_id = secrets.token_hex(16)
        is_saved = False
        try:
            manifest = self._upload(wanted, upload_id)
            is_saved = True
        except SourceChanged:
            self.report(UploadReport("dropped", wanted.name, wanted.fingerprint))
            return
        except UnusableCheckpointError as problem:
            reason = self.redact(str(problem))
            self.report(UploadReport("unusable", wanted.name, wanted.fingerprint, reason=reason))
            return
        finally:
            if not is_saved:
                self._remove_own(wanted.name, upload_id)
        self.report(
            UploadReport(
                "saved",
                wanted.name,
                wanted.fingerprint,
                step=manifest.step,
                time=manifest.time,
                byte_count=manifest.byte_count,
                uri=f"{self.where.rstrip('/')}/{manifest.prefix.rstrip('/')}",
                upload_id=upload_id,
                seconds=round(self.clock.monotonic() - started, 3),
            )
        )

    def _upload(self, wanted: Wanted, upload_id: str) -> CheckpointManifest:
        self._check_unchanged(wanted)
        source, files = self._files_of(wanted)
        kind: Kind = FILE if os.path.isfile(os.path.join(self.path, wanted.name)) else FOLDER
        done = self._put_all(wanted, upload_id, source, files)
        self._check_unchanged(wanted)
        self._check_stored(wanted, upload_id, done)
        now = self.clock.now()
        manifest = CheckpointManifest(
            name=wanted.name,
            upload_id=upload_id,
            node=self.node,
            kind=kind,
            files=tuple(sorted(done, key=lambda file: file.name)),
            byte_count=sum(file.size for file in done),
            time=format_time(now),
            step=step_of(wanted.name),
        )
        content = manifest.encode()
        there = self._manifests()
        written_as = ManifestName.made(there[0].sequence + 1 if there else 1, now, upload_id)

        def attempt() -> bool:
            self.store.put_whole(str(written_as), content)
            return True

        self._try_again(self.where, attempt)
        return manifest

    def _files_of(self, wanted: Wanted) -> tuple[ConfinedSource, list[RemoteFile]]:
        try:
            source = ConfinedSource(os.path.join(self.path, wanted.name))
            files = list(source.files())
            for file in files:
                checked_name(file.name).encode()
        except FileNotFoundError:
            raise SourceChanged from None
        except UnicodeEncodeError:
            raise UnusableCheckpointError("the name of a file in it is not UTF-8") from None
        except (StorageError, OSError) as error:
            self._check_unchanged(wanted)
            raise UnusableCheckpointError(str(explain(error, wanted.name))) from error
        if not files:
            raise SourceChanged
        return source, files

    def _put_all(
        self, wanted: Wanted, upload_id: str, source: ConfinedSource, files: list[RemoteFile]
    ) -> list[CheckpointFile]:
        done: list[CheckpointFile] = []
        stop = threading.Event()

        def put(file: RemoteFile) -> None:
            name = data_name(wanted.name, upload_id, file.name)
            is_first = True

            def attempt() -> bool:
                nonlocal is_first
                if not is_first:
                    self.store.delete([name])
                is_first = False
                hashed = hashlib.sha256()
                self.store.put(name, file.size or 0, self._blocks(source, file, hashed.update, stop))
                done.append(CheckpointFile(file.name, file.size or 0, hashed.hexdigest()))
                return True

            self._try_again(f"{self.where}: {wanted.name}/{file.name}", attempt, stop)

        try:
            process_all(files, put, parallel=self.parallel, stop=stop, tick=self._tick(stop))
        except Cancelled:
            raise SourceChanged from None
        return done

    def _blocks(
        self, source: ConfinedSource, file: RemoteFile, update: Callable[[bytes], object], stop: threading.Event
    ) -> Iterator[bytes]:
        blocks = source.read(file, 0)
        while True:
            try:
                block = next(blocks, b"")
            except (StorageError, OSError) as error:
                raise SourceChanged from error
            if not block:
                return
            self.bandwidth.take(len(block), stop)
            if stop.is_set():
                raise Cancelled
            update(block)
            yield block

    def _tick(self, stop: threading.Event) -> Callable[[], None]:
        def tick() -> None:
            if self.stop.is_set():
                stop.set()

        return tick

    def _check_unchanged(self, wanted: Wanted) -> None:
        """Raises SourceChanged unless the checkpoint is as the watcher has seen it."""
        root = open_root(self.path)
        if root is None:
            raise SourceChanged
        try:
            scan = scan_checkpoint(root, wanted.name)
        finally:
            os.close(root)
        if scan is None or scan.fingerprint != wanted.fingerprint:
            raise SourceChanged

    def _check_stored(self, wanted: Wanted, upload_id: str, done: list[CheckpointFile]) -> None:
        """Raises StorageError unless the storage lists all files with their sizes."""
        there = {file.name: file.size for file in self._listing(data_prefix(wanted.name, upload_id))}
        if there != {data_name(wanted.name, upload_id, file.name): file.size for file in done}:
            raise StorageError(
                f"{self.where}: the files that are stored differ from those that were uploaded", is_transient=True
            )

    def _remove_own(self, name: str, upload_id: str) -> None:
        """Removes what a failed upload has left; if that fails too, it is reported for a later run."""
        try:
            self.store.delete([file.name for file in self.store.listing(data_prefix(name, upload_id))])
        except Exception:
            self.report(UploadReport("left", upload_id=upload_id))

    def _clean_up(self, leftovers: frozenset[str]) -> None:
        """Removes checkpoints beyond `keep`, and files of uploads that have failed."""
        # In this order, an upload that is finished in between has its manifest in the second listing.
        data, manifest_files = self._listing(DATA), self._listing(MANIFESTS)
        names = [ManifestName.read(file.name) for file in manifest_files]
        complete = sorted((name for name in names if name is not None), reverse=True)
        self.store.delete([str(old) for old in complete[self.keep :]])
        kept = {name.upload_id for name in complete[: self.keep]}
        gone = {name.upload_id for name in complete[self.keep :]} | leftovers
        times = [file.modified for file in (*data, *manifest_files) if file.modified is not None]
        before = max(times) - self.leftover_age if times else None
        parts = [file for file in manifest_files if ManifestName.read(file.name) is None]
        doomed = [file.name for file in parts if file.name.endswith(".part") and _is_before([file], before)]
        for upload_id, files in _by_upload(data).items():
            if upload_id not in kept and (upload_id in gone or _is_before(files, before)):
                doomed += [file.name for file in files]
        if doomed:
            self.store.delete(doomed)
            _log.info("old files removed", files=len(doomed))

    def _try_again(self, where: str, attempt: Callable[[], bool], stop: threading.Event | None = None) -> None:
        RetryPolicy(self.retries, self.clock, stop or self.stop, self.redact).try_again(where, attempt)


def _by_upload(files: Iterable[StoredFile]) -> dict[str, list[StoredFile]]:
    found: dict[str, list[StoredFile]] = defaultdict(list)
    for file in files:
        upload = upload_of(file.name)
        if upload is not None:
            found[upload[1]].append(file)
    return found


def _is_before(files: list[StoredFile], moment: datetime | None) -> bool:
    """Whether all of these files were written before the moment; false if that is not known."""
    return moment is not None and all(file.modified is not None and file.modified < moment for file in files)
