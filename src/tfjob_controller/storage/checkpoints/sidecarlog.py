"""The lines of the process that watches: log lines on standard error, and results on standard output.

Log lines have the form of `telemetry.logging`, whose library alone would need more memory than the rest of this
process. Results are JSON objects with one fixed key, which a controller reads from the log of the container.
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import dataclass
from typing import Any, TextIO

from tfjob_controller.storage.checkpoints.layout import LONGEST_NAME
from tfjob_controller.storage.checkpoints.report import UploadReport
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.timestamps import format_micro_time

_LEVELS = ("debug", "info", "warning", "error")
_LONGEST_REASON = 1000
_LOGGER = "tfjob_controller.storage.checkpoints"


@dataclass(frozen=True, slots=True)
class SidecarLog:
    """A line that cannot be written is dropped."""

    clock: Clock
    log_format: str = "json"
    log_level: str = "info"
    out: TextIO = sys.stdout
    error: TextIO = sys.stderr

    def info(self, event: str, **values: object) -> None:
        self._log("info", event, values)

    def warning(self, event: str, **values: object) -> None:
        self._log("warning", event, values)

    def saved(self, report: UploadReport) -> None:
        """Says that a checkpoint is complete in the storage."""
        checkpoint: dict[str, object] = {
            "name": report.name[:LONGEST_NAME],
            "step": report.step,
            "time": report.time,
            "bytes": report.byte_count,
            "uri": report.uri[:_LONGEST_REASON],
            "uploadId": report.upload_id,
            "seconds": report.seconds,
        }
        self._write(self.out, json.dumps({"checkpoint": checkpoint}))

    def failed(self, name: str, reason: str) -> None:
        """Says that a checkpoint is not saved, and why; without secrets."""
        failure = {"name": name[:LONGEST_NAME], "reason": reason[:_LONGEST_REASON]}
        self._write(self.out, json.dumps({"checkpointFailed": failure}))

    def _log(self, level: str, event: str, values: dict[str, Any]) -> None:
        if _LEVELS.index(level) < _LEVELS.index(self.log_level):
            return
        moment = format_micro_time(self.clock.now())
        if self.log_format == "json":
            head = {"event": event, "logger": _LOGGER, "level": level, "timestamp": moment}
            self._write(self.error, json.dumps({**values, **head}))
        else:
            shown = " ".join(f"{name}={json.dumps(value)}" for name, value in values.items())
            self._write(self.error, f"{moment} [{level}] {event} {shown}".rstrip())

    def _write(self, stream: TextIO, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            print(line, file=stream, flush=True)
