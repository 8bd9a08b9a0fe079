"""The watching process of `checkpoint save`: looks at the folder, and has complete checkpoints uploaded.

Theory of operation. A step looks at the folder, takes the reports of a running upload, and starts an upload of what is
complete and has not been dealt with. What has been dealt with is remembered by its fingerprint, so a checkpoint that
changes is a candidate again. An upload that fails is retried after a growing delay; the watching continues. If
candidates have only changed or were removed by the program, a checkpoint that was not among them need not wait:
programs that keep few checkpoints may remove each one before its upload begins on a busy machine.

A checkpoint is never uploaded after a newer one of the same folder, since the last upload is what a restore takes.

The link from which the program resumes follows what is in the storage, so that a container that the kubelet restarts
continues from there too. If the program has removed that checkpoint, the link names the newest complete one instead.

After SIGTERM the training program has ended: a checkpoint that stays as it is for a second is complete. Uploads go on
until all is saved or the grace period is over.
"""

from __future__ import annotations

import os
import random
import threading
from dataclasses import dataclass, field
from typing import Protocol

from tfjob_controller.storage.checkpoints.layout import UPLOAD_ID
from tfjob_controller.storage.checkpoints.report import UploadReport, Wanted
from tfjob_controller.storage.checkpoints.resumelink import set_resume_link
from tfjob_controller.storage.checkpoints.sidecarlog import SidecarLog
from tfjob_controller.storage.checkpoints.watcher import CheckpointWatcher, CompleteCheckpoint, FolderError, open_root
from tfjob_controller.util.backoff import DecorrelatedBackoff
from tfjob_controller.util.clock import Clock

_BASE_SECONDS, _CAP_SECONDS = 1.0, 60.0
# After SIGTERM, what has not changed for this time is complete.
_QUIET_SECONDS = 1.0
_SHORT_SECONDS = 0.1


class Uploads(Protocol):
    """Runs one upload at a time, in another process."""

    def start(self, candidates: list[Wanted], leftovers: list[str]) -> None:
        """Starts an upload."""

    def poll(self) -> tuple[list[UploadReport], bool]:
        """The reports since the last call, and whether the upload has ended."""

    def kill(self) -> None:
        """Ends the upload at once."""


@dataclass(slots=True)
class Saver:
    """Saves the checkpoints of one folder. For one thread."""

    watcher: CheckpointWatcher
    uploads: Uploads
    log: SidecarLog
    clock: Clock
    poll_seconds: float
    grace_seconds: float
    _handled: dict[str, str] = field(default_factory=dict)
    """The key of the last scan that was dealt with, by name."""
    _from_start: dict[str, str] | None = None
    _newest: tuple[float, int, int, str] | None = None
    """The order of the newest candidate that is in the storage."""
    _linked: str = ""
    """The name from which the program resumes; empty before there is one in the storage."""
    _sent: dict[str, CompleteCheckpoint] = field(default_factory=dict)
    """The candidates of the running upload."""
    _is_running: bool = False
    _leftovers: list[str] = field(default_factory=list)
    _retry_at: float = 0.0
    _has_failed: bool = False
    _has_dropped: bool = False
    """Whether a candidate of the last upload has changed or was gone."""
    _is_hopeless: bool = False
    _said: dict[str, str] = field(default_factory=dict)
    """The reasons that were logged last, by name, until something succeeds."""
    _backoff: DecorrelatedBackoff = field(init=False)

    def __post_init__(self) -> None:
        self._backoff = DecorrelatedBackoff(
            self.clock,
            random.Random(),  # noqa: S311
            base_seconds=_BASE_SECONDS,
            cap_seconds=_CAP_SECONDS,
        )

    def run(self, stop: threading.Event) -> None:
        """Saves until `stop` is set, and then what became complete before."""
        while not stop.is_set():
            self.step()
            self.clock.sleep(self.poll_seconds, stop)
        self.finish()

    def step(self) -> None:
        """One look."""
        self._take_reports()
        complete = self._look()
        self._replace_lost_link(complete)
        pending = self._pending(complete)
        if pending and not self._is_running and self._is_due(pending):
            self._start(pending)

    def _is_due(self, pending: list[CompleteCheckpoint]) -> bool:
        if self.clock.monotonic() >= self._retry_at:
            return True
        if self._has_failed:
            return False
        sent = {each.name: each.scan.key for each in self._sent.values()}
        return any(sent.get(each.name) != each.scan.key for each in pending)

    def finish(self) -> None:
        """The last look: saves what stays as it is, until the grace period is over."""
        deadline = self.clock.monotonic() + self.grace_seconds
        never = threading.Event()
        self._has_failed = self._is_hopeless = False
        while self.clock.monotonic() < deadline:
            self._await_upload(deadline, never)
            quiet, changing = self._quiet(deadline, never)
            if (not quiet and not changing) or self._is_hopeless:
                break
            if quiet and not self._is_running:
                self._start(quiet)
        self._await_upload(deadline, never)
        if self._is_running:
            self.uploads.kill()
            for report in self.uploads.poll()[0]:
                if report.outcome == "saved":
                    self._take(report)
        for each in self._unsaved():
            self._say(
                each.name, f"it is not saved: the grace period of {self.grace_seconds:g} s is over or its upload failed"
            )

    def _look(self) -> list[CompleteCheckpoint]:
        try:
            complete = self.watcher.look()
        except (FolderError, OSError) as problem:
            self._say("", str(problem))
            return []
        self._said.pop("", None)
        if self._from_start is None:
            self._from_start = {each.name: each.scan.key for each in self.watcher.all()}
        there = {each.name for each in self.watcher.all()}
        self._handled = {name: key for name, key in self._handled.items() if name in there}
        return complete

    def _pending(self, complete: list[CompleteCheckpoint]) -> list[CompleteCheckpoint]:
        """Those that have not been dealt with; what needs no upload is dealt with here."""
        pending = []
        for each in complete:
            if self._handled.get(each.name) == each.scan.key:
                continue
            if each.scan.problem:
                self._handled[each.name] = each.scan.key
                self._say(each.name, f"it cannot be saved: {each.scan.problem}")
            elif self._newest is not None and each.order < self._newest:
                self._handled[each.name] = each.scan.key
                self.log.info("not saved: a newer checkpoint is", name=each.name)
            else:
                pending.append(each)
        return pending

    def _start(self, pending: list[CompleteCheckpoint]) -> None:
        from_start = self._from_start or {}
        self._sent = {each.name: each for each in pending}
        wanted = [
            Wanted(each.name, each.scan.fingerprint, from_start.get(each.name) == each.scan.key) for each in pending
        ]
        leftovers, self._leftovers = self._leftovers, []
        self._has_failed = self._has_dropped = self._is_hopeless = False
        self.uploads.start(wanted, leftovers)
        self._is_running = True

    def _take_reports(self) -> None:
        if not self._is_running:
            return
        reports, has_ended = self.uploads.poll()
        for report in reports:
            self._take(report)
        if has_ended:
            self._is_running = False
            if self._has_failed or self._has_dropped:
                at_least = _CAP_SECONDS if self._is_hopeless else 0.0
                self._retry_at = self.clock.monotonic() + self._backoff.next_seconds(at_least)

    def _take(self, report: UploadReport) -> None:
        outcome, candidate = report.outcome, self._sent.get(report.name)
        if outcome == "left":
            self._leftovers.append(report.upload_id)
        elif outcome == "failed":
            self._fail(report)
        elif outcome == "uncleaned":
            self.log.warning("old files in the storage could not be removed", reason=report.reason)
        elif outcome == "dropped":
            self._has_dropped = True
            self.log.info("not saved: it has changed or is gone", name=report.name)
        elif candidate is not None:
            self._settle(report, candidate)

    def _settle(self, report: UploadReport, candidate: CompleteCheckpoint) -> None:
        self._handled[candidate.name] = candidate.scan.key
        if report.outcome == "unusable":
            self._say(candidate.name, f"it cannot be saved: {report.reason}")
            return
        if report.outcome == "superseded":
            self.log.info("not saved: a newer checkpoint is", name=candidate.name)
            return
        if self._newest is None or candidate.order > self._newest:
            self._newest = candidate.order
            self._link(candidate.name)
        self._said.clear()
        if report.outcome == "saved":
            self.log.saved(report)
            self.log.info("checkpoint saved", name=report.name, bytes=report.byte_count, seconds=report.seconds)
        else:
            self.log.info("nothing to save: the storage has it", name=candidate.name)

    def _replace_lost_link(self, complete: list[CompleteCheckpoint]) -> None:
        usable = [each.name for each in complete if not each.scan.problem]
        if self._linked and usable and self._linked not in {each.name for each in self.watcher.all()}:
            self._link(usable[-1])

    def _link(self, name: str) -> None:
        """Lets the program resume from this checkpoint. A folder that cannot be written to does not stop the saving."""
        self._linked = name
        try:
            root = open_root(self.watcher.path)
            if root is None:
                return
            try:
                set_resume_link(root, name)
            finally:
                os.close(root)
        except (FolderError, OSError) as problem:
            self.log.warning("a restarted container will not resume from it", name=name, reason=str(problem))

    def _fail(self, report: UploadReport) -> None:
        self._has_failed = True
        self._is_hopeless = self._is_hopeless or not report.is_transient
        # A process that has crashed names no checkpoint.
        self._say(report.name or max(self._sent.values(), key=lambda each: each.order).name, report.reason)

    def _say(self, name: str, reason: str) -> None:
        """Says a failure once, until its reason changes or something succeeds."""
        # Each attempt has an upload id of its own.
        state = UPLOAD_ID.sub("", reason)
        if self._said.get(name) == state:
            return
        self._said[name] = state
        self.log.failed(name, reason)
        self.log.warning("checkpoint not saved", name=name, reason=reason)

    def _await_upload(self, deadline: float, never: threading.Event) -> None:
        self._take_reports()
        while self._is_running and self.clock.monotonic() < deadline:
            self.clock.sleep(min(_SHORT_SECONDS, max(0.0, deadline - self.clock.monotonic())), never)
            self._take_reports()

    def _quiet(
        self, deadline: float, never: threading.Event
    ) -> tuple[list[CompleteCheckpoint], list[CompleteCheckpoint]]:
        """The checkpoints to upload that do not change for a second, and those that do."""
        self.watcher.scan_afresh()
        self._look()
        if not self._unsaved():
            return [], []
        before = {each.name: each.scan.key for each in self.watcher.all()}
        self.clock.sleep(max(0.0, min(_QUIET_SECONDS, deadline - self.clock.monotonic())), never)
        self.watcher.scan_afresh()
        self._look()
        unsaved = self._pending(self.watcher.all())
        quiet = [each for each in unsaved if before.get(each.name) == each.scan.key]
        return quiet, [each for each in unsaved if each not in quiet]

    def _unsaved(self) -> list[CompleteCheckpoint]:
        return self._pending(self.watcher.all())
