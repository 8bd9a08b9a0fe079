"""`tfjob-controller checkpoint save` and `restore`, from options to an exit code.

`save` ends with 0 after SIGTERM or SIGINT, whatever it could not save; a restart of the sidecar would not help.
`restore` has the exit codes of `initialize`. Its result is one line of JSON, the last one on standard output; in a
container it is the termination message too, also after a success, and the controller reads it there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING

from tfjob_controller.storage.checkpoints.options import RestoreOptions, SaveOptions
from tfjob_controller.storage.checkpoints.report import UploadRequest, Wanted
from tfjob_controller.storage.errors import EXIT_PERMANENT, StorageError
from tfjob_controller.storage.uris import parse
from tfjob_controller.util.clock import RealClock

if TYPE_CHECKING:
    from tfjob_controller.storage.checkpoints.restorer import Restored
    from tfjob_controller.storage.checkpoints.sidecarlog import SidecarLog

_LONGEST_REASON = 200
_MOST_SKIPPED = 5
_LONGEST_URI = 1000


def save(options: SaveOptions) -> int:
    """Saves checkpoints until SIGTERM or SIGINT; returns the exit code."""
    try:
        uri = parse(options.storage_uri)
        if uri.scheme == "file":
            _check_apart(uri.path, options.path)
    except StorageError as error:
        print(f"tfjob-controller: checkpoint save: {error}", file=sys.stderr)
        return EXIT_PERMANENT
    stop = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, end)
    from tfjob_controller.storage.checkpoints.sidecarlog import SidecarLog

    log = SidecarLog(RealClock(), options.log_format, options.log_level, sys.stdout, sys.stderr)
    if options.node and not options.per_node:
        log.info("this node saves nothing: node 0 saves the checkpoints", node=options.node)
        stop.wait()
        return 0
    log.info("watching for checkpoints", path=options.path, uri=str(uri), keep=options.keep)
    _save_until(stop, options, log)
    log.info("stopped")
    return 0


def restore(options: RestoreOptions, environ: Mapping[str, str] = os.environ) -> int:
    """Restores the newest checkpoint; returns the exit code."""
    from tfjob_controller.storage.commands import run_command
    from tfjob_controller.storage.uris import Redactor

    redact = Redactor(environ)
    # The training program may run as another user, and must be able to remove what is restored.
    os.umask(0)

    def work() -> None:
        from tfjob_controller.storage.checkpoints.restorer import Restorer
        from tfjob_controller.storage.checkpoints.schemes import open_store, subfolder_of

        uri = parse(options.storage_uri)
        if uri.scheme == "file":
            _check_apart(uri.path, options.path)
        subfolder = subfolder_of(options.node or 0, options.per_node)
        restorer = Restorer(
            store=open_store(uri, environ, options.store_path, subfolder),
            uri=uri,
            path=os.path.realpath(options.path),
            parallel=options.parallel,
            retries=options.retries,
            clock=RealClock(),
            redact=redact,
        )
        _tell(restorer.run(), "/".join(filter(None, (str(uri).rstrip("/"), subfolder))))

    return run_command("checkpoint restore", options.storage_uri, redact, work)


def _tell(result: Restored, where: str) -> None:
    from tfjob_controller.storage.commands import write_termination_message

    skipped = [{"name": each.name, "reason": each.reason[:_LONGEST_REASON]} for each in result.skipped[:_MOST_SKIPPED]]
    manifest = result.manifest
    message: dict[str, object] = {"restored": None}
    if manifest is not None:
        uri = f"{where}/{manifest.prefix.rstrip('/')}"[:_LONGEST_URI]
        found = {"name": manifest.name, "step": manifest.step, "uri": uri, "uploadId": manifest.upload_id}
        message["restored"] = {**found, "skipped": skipped}
    elif skipped:
        message["skipped"] = skipped
    line = json.dumps(message, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    print(line, flush=True)
    write_termination_message(line)


def _save_until(stop: threading.Event, options: SaveOptions, log: SidecarLog) -> None:
    from tfjob_controller.storage.checkpoints.saver import Saver
    from tfjob_controller.storage.checkpoints.uploadprocess import UploadProcess
    from tfjob_controller.storage.checkpoints.watcher import CheckpointWatcher

    def make_request(candidates: list[Wanted], leftovers: list[str]) -> UploadRequest:
        return UploadRequest(
            storage_uri=options.storage_uri,
            store_path=options.store_path,
            path=options.path,
            keep=options.keep,
            node=options.node or 0,
            per_node=options.per_node,
            max_bandwidth=options.max_bandwidth,
            parallel=options.parallel,
            retries=options.retries,
            log_format=options.log_format,
            log_level=options.log_level,
            candidates=candidates,
            leftovers=leftovers,
            leftover_seconds=options.leftover_seconds,
        )

    clock = RealClock()
    watcher = CheckpointWatcher(options.path, options.settle_seconds, clock)
    uploads = UploadProcess(make_request)
    Saver(watcher, uploads, log, clock, options.poll_seconds, options.grace_seconds).run(stop)


def _check_apart(store: str, path: str) -> None:
    """Raises StorageError if the storage and the folder of checkpoints contain each other."""
    kept, written = os.path.realpath(store), os.path.realpath(path)
    if os.path.commonpath([kept, written]) in (kept, written):
        raise StorageError(f"file://{store}: it and the folder of checkpoints {path} must not contain each other")
