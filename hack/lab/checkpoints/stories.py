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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from lab.checkpoints.reports import Reported
from lab.checkpoints.stage import RUN, Stage
from lab.clusters import restart_node
from lab.injection import Fault
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


class Tally:
    """What has happened in the run. `count` is thread-safe. `interrupted` is set after an error."""

    def __init__(self) -> None:
        self.kills, self.missed, self.jobs = Counter[str](), Counter[str](), Counter[str]()
        self.interrupted = threading.Event()
        self._lock = threading.Lock()

    def count(self, counter: Counter[str], key: str) -> None:
        with self._lock:
            counter[key] += 1


@dataclass(slots=True)
class Story:
    """One job. For one thread."""

    plan: JobPlan
    stage: Stage
    auditor: Auditor
    tally: Tally
    patience_seconds: float
    _looked_at: float = 0.0
    _is_over: bool = False

    def play(self) -> None:
        """Runs the job to its end; violations go to the auditor."""
        if self.tally.interrupted.is_set():
            return
        self.stage.submit(self.plan)
        self.tally.count(self.tally.jobs, "created")
        for kill in self.plan.kills:
            if not self._await_progress(kill):
                break
            begins = self._job.begins
            happened = self._kill(kill)
            self.tally.count(self.tally.kills if happened else self.tally.missed, kill.kind)
            if happened and kill.kind in _RESTARTS:
                self._wait(functools.partial(self._has_begun_after, begins))
        self._job.may_end = True
        if not self.tally.interrupted.is_set():
            self._await_end()

    def _has_begun_after(self, begins: int) -> bool:
        return self._job.begins > begins

    @property
    def _job(self) -> Reported:
        return self.stage.reports.job(self.plan.name)

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

        return self._wait(is_time) and not self._has_ended()

    def _wait(self, condition: Callable[[], bool]) -> bool:
        """Waits until the condition holds or the job has ended; returns False after the patience."""
        deadline = time.monotonic() + self.patience_seconds
        while not condition() and not self._has_ended():
            if self.tally.interrupted.is_set():
                return False
            if time.monotonic() > deadline:
                newest = self.auditor.newest(self.plan.name)
                saved = f"step {newest.step} is saved" if newest else "nothing is saved"
                self.auditor.report("stuck", self.plan.name, f"no progress at step {self._job.last_step}, {saved}")
                return False
            time.sleep(_POLL_SECONDS)
        return True

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
        self.tally.count(self.tally.jobs, "succeeded" if has_succeeded else "unsuccessful")
        if not has_succeeded:
            self.auditor.report("unsuccessful", name, str({key: status.get(key) for key in ("phase", "reason")}))
        for problem in self._job.problems:
            self.auditor.report("broken", name, problem)

    def _kill(self, kill: Fault) -> bool:
        """Kills what the kind says; returns whether there was such a thing."""
        owner, pod, chance = self.stage.owner(self.plan.name), self._job.pod, kill.chance
        actions: Mapping[str, Callable[[], bool]] = {
            PROGRAM: lambda: _kill_all(owner, _PROGRAM_COMMAND),
            SIDECAR: lambda: _kill_all(owner, _SAVER_COMMAND),
            POD: lambda: self.stage.delete_pod(pod),
            POD_AT_ONCE: lambda: self.stage.delete_pod(pod, gracePeriodSeconds=0),
            HALF_UPLOAD: lambda: self._kill_held_upload() if self.plan.is_bucket else self._kill_upload(chance),
            NODE: lambda: self._kill_node(pod, chance),
            STORAGE: lambda: self._take_storage_away(chance),
        }
        return actions[kill.kind]()

    def _take_storage_away(self, chance: float) -> bool:
        with self.stage.storage_lock:
            self.stage.bucket.be_away("refuses" if chance < 0.5 else "hangs", 1 + chance * _LONGEST_AWAY_SECONDS)
        return True

    def _kill_held_upload(self) -> bool:
        """Kills an upload while the server holds one of its writes."""
        name = self.plan.name
        come = self.stage.bucket.hold_upload(name)
        try:
            return come.wait(_HOLD_SECONDS) and self._kill_uploads()
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

    def _kill_uploads(self) -> bool:
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


def _kill_all(owner: str, command: bytes) -> bool:
    """Kills these processes at once; returns whether there were any."""
    killed = [process.send(identity, signal.SIGKILL) for identity in _find(owner, command)]
    return any(killed)
