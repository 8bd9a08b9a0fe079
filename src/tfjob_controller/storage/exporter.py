"""Uploads the files of a folder to a URI."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from tfjob_controller.storage.confined import ConfinedSource
from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import Manifest, RemoteFile, check_free_space, size_of_folder
from tfjob_controller.storage.folder import FilledFolder
from tfjob_controller.storage.initializer import list_files
from tfjob_controller.storage.options import MODEL_FOLDER, OUTPUT_FOLDER, ExportOptions
from tfjob_controller.storage.transfer import RetryPolicy, Transfer, TransferProgress
from tfjob_controller.storage.uris import Redactor, StorageUri, parse
from tfjob_controller.storage.workerpool import process_all
from tfjob_controller.util.clock import RealClock

_log = structlog.get_logger(__name__)


class Sink(Protocol):
    """The destination of an export, usable by several threads."""

    def has(self, path: Path, name: str) -> bool:
        """Whether the destination has the same content already."""

    def put(self, path: Path, name: str) -> None:
        """Uploads the file and verifies that it is complete. The path refers to an open descriptor."""


def export_folder(options: ExportOptions, environ: Mapping[str, str], redact: Redactor) -> None:
    """Uploads all files of the source folder to the URI. Raises StorageError, and what errors.explain handles."""
    uri = parse(options.storage_uri)
    if uri.scheme in ("http", "https"):
        raise StorageError(f"{uri}: files cannot be exported to a web server: use s3://, gs://, hf:// or file://")
    if uri.scheme == "pvc":
        _log.info("nothing to send: the volume is mounted", uri=str(uri))
        return
    options = dataclasses.replace(options, source=source_of(options))
    retry_policy = RetryPolicy(options.retries, RealClock(), threading.Event(), redact)
    source = ConfinedSource(options.source)
    manifest = list_files(source, options.source, retry_policy)
    _log.info("sending", uri=str(uri), source=options.source, files=len(manifest.files), bytes=manifest.byte_count)
    export = _Export(
        source, manifest, TransferProgress(len(manifest.files), manifest.byte_count, retry_policy.clock), retry_policy
    )
    export.send(uri, options, environ)
    _log.info("done", uri=str(uri), **export.progress.figures())


def source_of(options: ExportOptions, output: str = OUTPUT_FOLDER, model: str = MODEL_FOLDER) -> str:
    """The output folder if it exists, else the model folder. Raises StorageError without either."""
    source = options.source or next((folder for folder in (output, model) if Path(folder).exists()), "")
    if not source:
        raise StorageError(
            f"there is nothing to export: neither {output} nor {model} exists; the training program must write the "
            f"files to export to {output}"
        )
    return source


@dataclass(frozen=True, slots=True)
class _Export:
    source: ConfinedSource
    manifest: Manifest
    progress: TransferProgress
    retry_policy: RetryPolicy

    def send(self, uri: StorageUri, options: ExportOptions, environ: Mapping[str, str]) -> None:
        if uri.scheme == "file":
            self._copy(uri, options)
        elif uri.scheme == "hf":
            self._commit(uri, environ)
        else:
            sink = _sink(uri, environ)
            self._each(lambda file: self._put(sink, file), options.parallel)

    def _each(self, work: Callable[[RemoteFile], None], parallel: int) -> None:
        stop, tick = self.retry_policy.stop, self.progress.tick
        process_all(self.manifest.files, work, parallel=parallel, stop=stop, tick=tick)

    def _put(self, sink: Sink, file: RemoteFile) -> None:
        was_there = True

        def attempt() -> bool:
            nonlocal was_there
            with self.source.opened(file) as path:
                if not sink.has(path, file.name):
                    was_there = False
                    sink.put(path, file.name)
            return True

        self.retry_policy.try_again(file.name, attempt)
        (self.progress.found if was_there else self.progress.moved)(file.size or 0)
        self.progress.file_done(file, file.size or 0, was_there=was_there)

    def _copy(self, uri: StorageUri, options: ExportOptions) -> None:
        target = Path(os.path.realpath(uri.path))
        if target.is_relative_to(os.path.realpath(options.source)):
            raise StorageError(f"{uri}: it lies within {options.source}, which is exported")
        with FilledFolder(target) as folder:
            folder.unmark()
            check_free_space(self.manifest.byte_count - size_of_folder(folder.root), folder.root)
            self._each(Transfer(self.source, folder, self.progress, self.retry_policy).fetch, options.parallel)
            folder.finish(uri, "export", self.manifest.files, self.progress.present_bytes)

    def _commit(self, uri: StorageUri, environ: Mapping[str, str]) -> None:
        from tfjob_controller.storage.hub import HubSink

        sink = HubSink(uri, environ)

        def attempt() -> bool:
            with self.source.all_opened(self.manifest.files) as paths:
                sink.put_all(paths)
            return True

        def commit(where: str) -> None:
            self.retry_policy.try_again(where, attempt)

        process_all([str(uri)], commit, parallel=1, stop=self.retry_policy.stop, tick=self.progress.tick)
        self.progress.moved(self.manifest.byte_count)


def _sink(uri: StorageUri, environ: Mapping[str, str]) -> Sink:
    if uri.scheme == "s3":
        from tfjob_controller.storage.s3 import S3Sink

        return S3Sink(uri, environ)
    from tfjob_controller.storage.gs import GsSink

    return GsSink(uri, environ)
