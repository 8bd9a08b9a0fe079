"""What happens to one job: it is created, its kills happen one after the other, and then it may end.

The processes of its containers are seen by this machine. A process belongs to a job of this run if its environment says
so (`CHAOS_RUN`); others are never touched.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lab.checkpoints.auditor import Auditor
from lab.checkpoints.plan import (
    HALF_UPLOAD,
    NODE,
    POD,
    POD_AT_ONCE,
    PROGRAM,
    SIDECAR,
    STORAGE,
    JobPlan,
)
from lab.checkpoints.reports import Reported, ReportServer
from lab.checkpoints.stage import RUN, Stage
from lab.injection import Fault
from lab.realnodes import restart_node
from localcluster import process
from localcluster.process import Identity

# Part of the command line of each program.
_PROGRAM_COMMAND, _SAVER_COMMAND, _UPLOAD_COMMAND = b"python3\0-c\0", b"checkpoint\0save\0", b"checkpoint\0upload\0"
_POLL_SECONDS = 0.2
_LOOK_SECONDS = 3.0
_LONGEST_AWAY_SECONDS = 15.0
_LONGEST_NODE_SECONDS = 35.0
# How soon after its start an upload outside of a bucket is killed; most of the time it imports modules.
_UPLOAD_SECONDS = 1.2
_HOLD_SECONDS = 60.0
# After these, another program begins.
_RESTARTS = {PROGRAM, POD, POD_AT_ONCE, NODE}


@dataclass(slots=True)
class Tally:
    """What has happened in the run. Thread-safe."""

    kills: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    succeeded: int = 0
    ended: int = 0
    created: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    no_more: threading.Event = field(default_factory=threading.Event)
    """Set when no more kills happen and no more jobs are created."""
    interrupted: threading.Event = field(default_factory=threading.Event)

    def count_created(self) -> None:
        with self.lock:
            self.created += 1

    def count(self, kind: str, *, happened: bool) -> None:
        with self.lock:
            (self.kills if happened else self.missed)[kind] += 1

    def count_end(self, *, succeeded: bool) -> None:
        with self.lock:
            self.ended += 1
            self.succeeded += succeeded


@dataclass(slots=True)
class Story:
    """One job. For one thread."""

    plan: JobPlan
    stage: Stage
    server: ReportServer
    auditor: Auditor
    tally: Tally
    patience_seconds: float
    _looked_at: float = 0.0
    _is_over: bool = False

    def play(self) -> None:
        """Runs the job to its end; violations go to the auditor."""
        if self.tally.no_more.is_set():
            return
        self.stage.submit(self.plan)
        self.tally.count_created()
        for kill in self.plan.kills:
            if self.tally.no_more.is_set() or not self._await_progress(kill):
                break
            begins = self._job.begins
            happened = self._kill(kill)
            self.tally.count(kill.kind, happened=happened)
            if happened and kill.kind in _RESTARTS:
                self._wait(functools.partial(self._has_begun_after, begins))
        self._job.may_end = True
        if not self.tally.interrupted.is_set():
            self._await_end()

    def _has_begun_after(self, begins: int) -> bool:
        return self._job.begins > begins

    @property
    def _job(self) -> Reported:
        return self.server.job(self.plan.name)

    def _await_progress(self, kill: Fault) -> bool:
        """Waits until a program has trained for a while; returns False if the job makes no progress or has ended.

        Two thirds of the kills also wait until that program has saved a checkpoint.
        """
        steps = 1 + int(kill.chance * 2 * self.plan.steps_per_checkpoint)
        has_to_save = kill.chance * 100 % 1 < 2 / 3

        def is_time() -> bool:
            job = self._job
            if job.steps_since_begin < steps:
                return False
            newest = self.auditor.newest(self.plan.name)
            return not has_to_save or (newest is not None and newest.seen_at > job.began_at)

        is_over = self.tally.no_more.is_set
        return self._wait(lambda: is_time() or is_over()) and not is_over() and not self._has_ended()

    def _wait(self, condition: Callable[[], bool]) -> bool:
        """Waits until the condition holds or the job has ended; returns False after the patience."""
        deadline = time.monotonic() + self.patience_seconds
        while not condition() and not self._has_ended():
            if self.tally.interrupted.is_set():
                return False
            if time.monotonic() > deadline:
                self.auditor.report(
                    "stuck", self.plan.name, f"no progress for {self.patience_seconds:g} s: {self._summary()}"
                )
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _summary(self) -> str:
        job, newest = self._job, self.auditor.newest(self.plan.name)
        saved = f"step {newest.step} is saved" if newest else "nothing is saved"
        return f"{self.stage.status(self.plan.name).get('summary', '')}, step {job.last_step}, {saved}"

    def _has_ended(self) -> bool:
        """Whether the job has ended, as seen at most a few seconds ago."""
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._is_over = self.stage.status(self.plan.name).get("phase") in ("Done", "Failed")
        return self._is_over

    def _await_end(self) -> None:
        name, deadline = self.plan.name, time.monotonic() + self.patience_seconds
        while (status := self.stage.status(name)).get("phase") not in ("Done", "Failed"):
            if time.monotonic() > deadline or self.tally.interrupted.is_set():
                break
            time.sleep(_POLL_SECONDS * 5)
        # A job is Done when its program is, and its sidecar may still save the last checkpoint.
        while self.stage.has_running_pods(name) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS * 5)
        has_succeeded = (status.get("phase"), status.get("state")) == ("Done", "SUCCESS")
        self.tally.count_end(succeeded=has_succeeded)
        if not has_succeeded:
            self.auditor.report("unsuccessful", name, str({key: status.get(key) for key in ("phase", "reason")}))
        for problem in self._job.problems:
            self.auditor.report("broken", name, problem)

    def _kill(self, kill: Fault) -> bool:
        owner, pod = self.stage.owner(self.plan.name), self._job.pod
        if kill.kind == PROGRAM:
            return _kill_all(owner, _PROGRAM_COMMAND) > 0
        if kill.kind == SIDECAR:
            return _kill_all(owner, _SAVER_COMMAND) > 0
        if kill.kind in (POD, POD_AT_ONCE):
            return self.stage.delete_pod(pod, at_once=kill.kind == POD_AT_ONCE)
        if kill.kind == HALF_UPLOAD:
            return self._kill_held_upload() if self.plan.is_bucket else self._kill_upload(kill.chance)
        if kill.kind == NODE:
            return self._kill_node(pod, kill.chance)
        if kill.kind == STORAGE:
            with self.stage.storage_lock:
                how = "refuses" if kill.chance < 0.5 else "hangs"
                self.stage.bucket.be_away(how, 1 + kill.chance * _LONGEST_AWAY_SECONDS)
            return True
        raise ValueError(kill.kind)

    def _kill_held_upload(self) -> bool:
        """Kills an upload while the server holds one of its writes."""
        name = self.plan.name
        come = self.stage.bucket.hold_upload(name)
        try:
            return come.wait(_HOLD_SECONDS) and self._kill_uploads() > 0
        finally:
            self.stage.bucket.release(name)

    def _kill_upload(self, chance: float) -> bool:
        """Kills an upload a moment after it has started."""
        deadline = time.monotonic() + _HOLD_SECONDS
        while time.monotonic() < deadline:
            if _find(self.stage.owner(self.plan.name), _UPLOAD_COMMAND):
                time.sleep(chance * _UPLOAD_SECONDS)
                if self._kill_uploads():
                    return True
            time.sleep(_POLL_SECONDS)
        return False

    def _kill_uploads(self) -> int:
        return _kill_all(self.stage.owner(self.plan.name), _UPLOAD_COMMAND)

    def _kill_node(self, pod: str, chance: float) -> bool:
        with self.stage.node_lock:
            node = ((self.stage.pod(pod) or {}).get("spec") or {}).get("nodeName", "")
            number = node.rpartition("-")[2]
            if not number.isdigit():
                return False
            restart_node(self.stage.folder, int(number), 1 + chance * _LONGEST_NODE_SECONDS)
        return True


def _find(owner: str, command: bytes) -> list[Identity]:
    """Returns the processes of an owner with this in their command line."""
    identities = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if command not in (folder / "cmdline").read_bytes():
                continue
            environment = (folder / "environ").read_bytes().split(b"\0")
            if f"{RUN}={owner}".encode() in environment and (identity := process.identify(int(folder.name))):
                identities.append(identity)
    return identities


def _kill_all(owner: str, command: bytes) -> int:
    """Kills these processes at once; returns how many there were."""
    return sum(process.send(identity, signal.SIGKILL) for identity in _find(owner, command))
