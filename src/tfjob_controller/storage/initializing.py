"""Filling a folder from a URI: manifest, room, files in parallel, marker."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

import structlog

from tfjob_controller.storage.crew import work_through
from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import RemoteFile
from tfjob_controller.storage.folder import FilledFolder
from tfjob_controller.storage.manifest import Manifest, bytes_in, check_room, manifest_of
from tfjob_controller.storage.options import InitializeOptions
from tfjob_controller.storage.progress import Progress
from tfjob_controller.storage.redaction import Redactor
from tfjob_controller.storage.sources import Source, open_source
from tfjob_controller.storage.transfer import Patience, Transfer
from tfjob_controller.storage.uris import StorageUri, parse
from tfjob_controller.util.clock import RealClock

_log = structlog.get_logger(__name__)


def initialize_folder(what: str, options: InitializeOptions, environ: Mapping[str, str], redact: Redactor) -> None:
    """Have all files of the URI in the target folder. Raises StorageError, and whatever errors.explain knows."""
    uri = parse(options.storage_uri, what)
    if uri.scheme == "pvc":
        _log.info("nothing to fetch: the volume is mounted", uri=str(uri))
        return
    _check_apart(uri, options.target)
    with FilledFolder(Path(options.target)) as folder:
        if folder.is_filled_from(uri):
            _log.info("nothing to fetch: an earlier run has fetched all of it", uri=str(uri), target=str(folder.root))
            return
        patience = Patience(options.retries, RealClock(), threading.Event(), redact)
        fill(folder, uri, open_source(uri, environ), patience, what=what, options=options)


def fill(
    folder: FilledFolder, uri: StorageUri, source: Source, patience: Patience, *, what: str, options: InitializeOptions
) -> None:
    """Fetch all files of a source into a folder that is held, and mark it."""
    manifest = list_files(source, uri, patience)
    _log.info("fetching", uri=str(uri), target=str(folder.root), files=len(manifest.files), bytes=manifest.byte_count)
    folder.unmark()
    check_room(manifest.byte_count - bytes_in(folder.root), folder.root)
    progress = Progress(len(manifest.files), manifest.byte_count, patience.clock)
    transfer = Transfer(source, folder, progress, patience, options.verify_hash)
    work_through(manifest.files, transfer.fetch, parallel=options.parallel, stop=patience.stop, tick=progress.tick)
    folder.finish(uri, what, manifest.files, progress.present_bytes)
    _log.info("done", uri=str(uri), **progress.figures())


def list_files(source: Source, where: object, patience: Patience) -> Manifest:
    """The manifest, tried for as long as faults may pass."""
    found: list[RemoteFile] = []

    def attempt() -> bool:
        found[:] = source.files()
        return True

    patience.try_again(str(where), attempt)
    return manifest_of(found, where)


def _check_apart(uri: StorageUri, target: str) -> None:
    if uri.scheme != "file":
        return
    source, filled = Path(os.path.realpath(uri.path)), Path(os.path.realpath(target))
    if filled.is_relative_to(source) or (source.is_relative_to(filled) and source.exists()):
        raise StorageError(f"{uri}: it and the target {target} lie within each other")
