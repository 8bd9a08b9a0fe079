"""Reads the storages all the time, and judges what is saved and what is restored.

Theory of operation. A thread lists the storages in a loop. Each manifest that appears is recorded with the time at
which it was seen, and the files that it names are hashed. What must hold:

- broken: the files of a checkpoint with a manifest exist, with the sizes and hashes of the manifest, as long as the
  manifest exists. It is judged when the manifest appears, and again at the end.
- older: no program continues from an older checkpoint than the newest one that was seen before its restore began.
- order: a newer checkpoint never has a lower step than an older one.
- kept: after a further save to each storage, only the newest `keep` checkpoints are left, and no other files.

The order of checkpoints is that of their manifests' names. Thread-safe.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.background import Background
from lab.checkpoints.storages import Reader

_POLL_SECONDS = 0.5
_MANIFEST = re.compile(r"manifests/(\d+)-(\d{8}T\d{6}Z)-([0-9a-f]{32})\.json")

Violation = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class Checkpoint:
    """A checkpoint that was seen in a storage; a larger one is newer."""

    sequence: int
    time: str
    upload_id: str
    manifest: str = field(compare=False)
    step: int = field(compare=False)
    files: Mapping[str, tuple[int, str]] = field(compare=False)
    """Size and SHA-256 of each file, by its name in the storage."""
    seen_at: float = field(compare=False)
    """When a listing had ended that contained it; seconds of this machine's clock."""


class Auditor(Background):
    """Reads the storages in the background."""

    def __init__(self, readers: Mapping[str, Reader]) -> None:
        """`readers` has the storage of each job."""
        super().__init__(self._run)
        self.violations: list[Violation] = []
        self._readers = readers
        self._seen: dict[str, dict[str, Checkpoint]] = {job: {} for job in readers}
        self._lock = threading.Lock()

    @property
    def saved(self) -> int:
        """The number of checkpoints that were seen."""
        with self._lock:
            return sum(len(checkpoints) for checkpoints in self._seen.values())

    def newest(self, job: str, before: float = float("inf")) -> Checkpoint | None:
        """The newest checkpoint of the job that was seen before this time."""
        with self._lock:
            known = [checkpoint for checkpoint in self._seen[job].values() if checkpoint.seen_at <= before]
        return max(known, default=None)

    def judge_restore(self, job: str, step: int, started_at: float) -> None:
        """Judges from which step a program goes on whose restore began at this time."""
        newest = self.newest(job, started_at)
        if newest is not None and step < newest.step:
            details = f"it continues from step {step} although {newest.manifest} has step {newest.step}"
            self.report("older", job, details)

    def report(self, rule: str, job: str, details: str) -> None:
        with self._lock:
            self.violations.append({"rule": rule, "job": job, "details": details})

    def look(self, job: str = "") -> None:
        """Reads the listings of all storages, or of that of one job, and judges what is new."""
        readers = [self._readers[job]] if job else list(dict.fromkeys(self._readers.values()))
        for reader in readers:
            listing = reader.listing(job)
            at = time.time()
            for owner, files in listing.items():
                if self._readers.get(owner) is reader:
                    self._take(owner, files, at)

    def judge_end(self, job: str) -> None:
        """Judges all that the storage has now."""
        for checkpoint, problem in self._problems(job):
            self.report("broken", job, f"at the end: {checkpoint.manifest}: {problem}")

    def judge_kept(self, job: str, keep: int) -> None:
        """Judges what is left after a save that has removed what is old."""
        files = self._readers[job].listing(job).get(job, {})
        manifests = [name for name in files if name.startswith("manifests/")]
        with self._lock:
            known_count = len(self._seen[job])
        if len(manifests) != min(keep, known_count) or not all(_MANIFEST.fullmatch(name) for name in manifests):
            self.report("kept", job, f"{len(manifests)} manifests although keep is {keep}: {manifests[:5]}")
        with self._lock:
            known = [self._seen[job][name] for name in manifests if name in self._seen[job]]
            newest = sorted(self._seen[job].values(), reverse=True)[:keep]
        if sorted(known, reverse=True) != newest:
            self.report("kept", job, f"not the newest are left, but {sorted(manifests)}")
        owned = {name for checkpoint in known for name in checkpoint.files}
        if left := [name for name in files if name.startswith("data/") and name not in owned]:
            self.report("kept", job, f"{len(left)} files belong to no checkpoint: {left[:3]}")

    def _run(self) -> None:
        for _ in self.ticks(_POLL_SECONDS):
            try:
                self.look()
            except Exception as error:
                self.report("auditor", "", f"{type(error).__name__}: {error}")
                return

    def _take(self, job: str, files: Mapping[str, int], at: float) -> None:
        for name in sorted(files):
            if (match := _MANIFEST.fullmatch(name)) is None or name in self._seen[job]:
                continue
            content = self._readers[job].read(job, name)
            if content is None:
                continue
            checkpoint = _checkpoint(name, match, content, at)
            if checkpoint is None:
                self.report("broken", job, f"{name} is no manifest: {content[:200]!r}")
                continue
            before = self.newest(job)
            with self._lock:
                is_new = name not in self._seen[job]
                self._seen[job][name] = checkpoint
            if not is_new:
                continue
            older, newer = sorted((before or checkpoint, checkpoint))
            if newer.step < older.step:
                self.report("order", job, f"{newer.manifest} has step {newer.step}, {older.manifest} has {older.step}")
            if problem := self._problem(job, checkpoint):
                self.report("broken", job, f"{name}: {problem}")

    def _problems(self, job: str) -> list[tuple[Checkpoint, str]]:
        with self._lock:
            known = list(self._seen[job].values())
        return [(checkpoint, problem) for checkpoint in known if (problem := self._problem(job, checkpoint))]

    def _problem(self, job: str, checkpoint: Checkpoint) -> str:
        """Returns what is wrong with the files of a checkpoint; nothing is if it has been removed."""
        reader, problem = self._readers[job], ""
        for name, (size, sha256) in checkpoint.files.items():
            content = reader.read(job, name)
            if content is None:
                problem = f"{name} is missing"
            elif len(content) != size or hashlib.sha256(content).hexdigest() != sha256:
                problem = f"{name} has another size or hash"
        if problem and reader.read(job, checkpoint.manifest) is None:
            return ""
        return problem


def _checkpoint(name: str, match: re.Match[str], content: bytes, at: float) -> Checkpoint | None:
    try:
        fields = json.loads(content)
        prefix = f"data/{fields['name']}/{fields['uploadId']}"
        files = {f"{prefix}/{file['name']}": (int(file["size"]), str(file["sha256"])) for file in fields["files"]}
        step = int(fields["step"])
    except (ValueError, KeyError, TypeError):
        return None
    return Checkpoint(int(match[1]), match[2], match[3], name, step, files, at)
