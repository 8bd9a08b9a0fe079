"""The parts of `tfjob-controller checkpoint` in one process: a folder that trains, uploads in place, and a restore."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.fakeclock import FakeClock
from tfjob_controller.storage.checkpoints.bandwidth import Bandwidth
from tfjob_controller.storage.checkpoints.localstore import LocalStore
from tfjob_controller.storage.checkpoints.report import UploadReport, Wanted
from tfjob_controller.storage.checkpoints.restorer import Restored, Restorer
from tfjob_controller.storage.checkpoints.resumelink import RESUME_LINK
from tfjob_controller.storage.checkpoints.saver import Saver
from tfjob_controller.storage.checkpoints.sidecarlog import SidecarLog
from tfjob_controller.storage.checkpoints.store import CheckpointStore, StoredFile
from tfjob_controller.storage.checkpoints.uploader import Uploader
from tfjob_controller.storage.checkpoints.watcher import CheckpointWatcher, open_root, scan_checkpoint
from tfjob_controller.storage.uris import Redactor, parse
from tfjob_controller.util.clock import Clock, RealClock


class KilledError(BaseException):
    """The process is killed here."""


@dataclass(slots=True)
class MortalStore:
    """A store whose process is killed at its n-th operation: a `put` then leaves the first half of its file."""

    store: CheckpointStore
    operations: int

    def _count(self) -> bool:
        self.operations -= 1
        if self.operations < 0:
            raise KilledError
        return self.operations == 0

    def put(self, name: str, size: int, blocks: Iterable[bytes]) -> None:
        if self._count():
            content = b"".join(blocks)
            self.store.put(name, size, [content[: len(content) // 2]])
            raise KilledError
        self.store.put(name, size, blocks)

    def put_whole(self, name: str, content: bytes) -> None:
        self._count()
        self.store.put_whole(name, content)

    def listing(self, prefix: str) -> list[StoredFile]:
        self._count()
        return self.store.listing(prefix)

    def read(self, name: str, offset: int, size: int | None = None) -> Iterator[bytes]:
        self._count()
        return self.store.read(name, offset, size)

    def delete(self, names: Sequence[str]) -> None:
        """A kill lets the first half go."""
        if self._count():
            self.store.delete(names[: len(names) // 2])
            raise KilledError
        self.store.delete(names)


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Writes files by their relative names."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def contents(path: Path) -> dict[str, bytes]:
    """All files of a checkpoint by their relative names; a checkpoint that is a file has one without a name."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {each.relative_to(path).as_posix(): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def wanted(folder: Path, name: str, *, is_from_start: bool = False) -> Wanted:
    """The candidate of a checkpoint as it is now."""
    root = open_root(str(folder))
    assert root is not None
    scan = scan_checkpoint(root, name)
    assert scan is not None
    return Wanted(name, scan.fingerprint, is_from_start)


def uploader(
    store: CheckpointStore,
    folder: Path,
    reports: list[UploadReport],
    *,
    keep: int = 3,
    parallel: int = 2,
    clock: Clock | None = None,
) -> Uploader:
    clock = clock or RealClock()
    return Uploader(
        store=store,
        where="file:///store",
        path=str(folder),
        keep=keep,
        node=0,
        parallel=parallel,
        retries=1,
        bandwidth=Bandwidth(0, clock),
        clock=clock,
        redact=Redactor({}),
        report=reports.append,
    )


def save(
    store: CheckpointStore, folder: Path, *names: str, keep: int = 3, from_start: bool = False
) -> list[UploadReport]:
    """Uploads checkpoints as they are now, the oldest first; returns what is reported."""
    reports: list[UploadReport] = []
    candidates = [wanted(folder, name, is_from_start=from_start) for name in names]
    uploader(store, folder, reports, keep=keep).run(candidates)
    return reports


def restore(store: CheckpointStore, folder: Path) -> Restored:
    return Restorer(
        store=store,
        uri=parse("file:///store"),
        path=str(folder),
        parallel=2,
        retries=1,
        clock=RealClock(),
        redact=Redactor({}),
    ).run()


def resumed(folder: Path) -> dict[str, bytes] | None:
    """The content of the checkpoint that the link names; None without a link."""
    link = folder / RESUME_LINK
    return contents(link.resolve(strict=True)) if link.is_symlink() else None


@dataclass(slots=True)
class UploadsInPlace:
    """Implements `saver.Uploads`: an upload runs when it is polled."""

    make: Any
    """Returns the uploader for a list of reports."""
    starts: list[list[str]] = field(default_factory=list)
    _waiting: tuple[list[Wanted], list[str]] | None = None
    is_slow: bool = False
    """Whether an upload does not end."""
    killed: int = 0

    def start(self, candidates: list[Wanted], leftovers: list[str]) -> None:
        self.starts.append([each.name for each in candidates])
        self._waiting = (candidates, leftovers)

    def poll(self) -> tuple[list[UploadReport], bool]:
        if self._waiting is None or self.is_slow:
            return [], False
        reports: list[UploadReport] = []
        self.make(reports).run(*self._waiting)
        self._waiting = None
        return reports, True

    def kill(self) -> None:
        self.killed += 1


@dataclass(slots=True)
class SidecarScene:
    """A sidecar on a fake clock, with a folder and a store below one path."""

    path: Path
    keep: int = 3
    settle_seconds: float = 10.0
    clock: FakeClock = field(default_factory=FakeClock)
    out: io.StringIO = field(default_factory=io.StringIO)
    error: io.StringIO = field(default_factory=io.StringIO)
    store: CheckpointStore = field(init=False)
    uploads: UploadsInPlace = field(init=False)
    saver: Saver = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.store = LocalStore(str(self.path / "store"))
        self.start()

    @property
    def folder(self) -> Path:
        return self.path / "work"

    def start(self) -> None:
        """Starts the sidecar, or starts it again."""
        self.uploads = UploadsInPlace(
            lambda reports: uploader(self.store, self.folder, reports, keep=self.keep, clock=self.clock)
        )
        log = SidecarLog(self.clock, "json", "info", self.out, self.error)
        watcher = CheckpointWatcher(str(self.folder), self.settle_seconds, self.clock)
        self.saver = Saver(watcher, self.uploads, log, self.clock, 2.0, 25.0)

    def after(self, seconds: float) -> None:
        """Lets the time pass in polls of a second."""
        for _ in range(round(seconds)):
            self.clock.advance(1.0)
            self.saver.step()

    @property
    def told(self) -> list[dict[str, Any]]:
        """The lines of standard output."""
        return [json.loads(line) for line in self.out.getvalue().splitlines()]

    @property
    def saved(self) -> list[str]:
        return [line["checkpoint"]["name"] for line in self.told if "checkpoint" in line]

    @property
    def failed(self) -> list[tuple[str, str]]:
        found = [line["checkpointFailed"] for line in self.told if "checkpointFailed" in line]
        return [(each["name"], each["reason"]) for each in found]
