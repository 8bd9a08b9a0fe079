"""Fills a folder from a URI: lists the files, checks the free space, fetches files in parallel, writes the marker."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

import structlog

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import Manifest, RemoteFile, check_free_space, manifest_of, size_of_folder
from tfjob_controller.storage.folder import FilledFolder
from tfjob_controller.storage.options import InitializeOptions
from tfjob_controller.storage.sources import Source, open_source
from tfjob_controller.storage.transfer import RetryPolicy, Transfer, TransferProgress
from tfjob_controller.storage.uris import Redactor, StorageUri, parse
from tfjob_controller.storage.workerpool import process_all
from tfjob_controller.util.clock import RealClock

_log = structlog.get_logger(__name__)


def initialize_folder(what: str, options: InitializeOptions, environ: Mapping[str, str], redact: Redactor) -> None:
    """Fetches all files of the URI into the target folder. Raises StorageError, and what errors.explain handles."""
    uri = parse(options.storage_uri, what)
    if uri.scheme == "pvc":
        _log.info("nothing to fetch: the volume is mounted", uri=str(uri))
        return
    _check_apart(uri, options.target)
    with FilledFolder(Path(options.target)) as folder:
        if folder.is_filled_from(uri):
            _log.info("nothing to fetch: an earlier run has fetched all of it", uri=str(uri), target=str(folder.root))
            return
        retry_policy = RetryPolicy(options.retries, RealClock(), threading.Event(), redact)
        fill(folder, uri, open_source(uri, environ), retry_policy, what=what, options=options)


def fill(
    folder: FilledFolder,
    uri: StorageUri,
    source: Source,
    retry_policy: RetryPolicy,
    *,
    what: str,
    options: InitializeOptions,
) -> None:
    """Fetches all files of a source into a locked folder, and writes its marker."""
    manifest = list_files(source, uri, retry_policy)
    _log.info("fetching", uri=str(uri), target=str(folder.root), files=len(manifest.files), bytes=manifest.byte_count)
    folder.unmark()
    check_free_space(manifest.byte_count - size_of_folder(folder.root), folder.root)
    progress = TransferProgress(len(manifest.files), manifest.byte_count, retry_policy.clock)
    transfer = Transfer(source, folder, progress, retry_policy, options.verify_hash)
    process_all(manifest.files, transfer.fetch, parallel=options.parallel, stop=retry_policy.stop, tick=progress.tick)
    folder.finish(uri, what, manifest.files, progress.present_bytes)
    _log.info("done", uri=str(uri), **progress.figures())


def list_files(source: Source, where: object, retry_policy: RetryPolicy) -> Manifest:
    """The manifest of a source; transient errors are retried."""
    found: list[RemoteFile] = []

    def attempt() -> bool:
        found[:] = source.files()
        return True

    retry_policy.try_again(str(where), attempt)
    return manifest_of(found, where)


def _check_apart(uri: StorageUri, target: str) -> None:
    if uri.scheme != "file":
        return
    source, filled = Path(os.path.realpath(uri.path)), Path(os.path.realpath(target))
    if filled.is_relative_to(source) or (source.is_relative_to(filled) and source.exists()):
        raise StorageError(f"{uri}: it and the target {target} must not contain each other")
