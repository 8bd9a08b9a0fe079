"""Faults of machines: clocks that jump, and a disk without room. Each needs something that not every machine gives.

Clocks: libfaketime, a library of Debian's that is loaded into a program and tells it another time of day. A file of
each machine says by how much it is off; the program looks into it once in a second. Time that only goes on (monotonic)
is left alone, as it is where an administrator sets a clock. Go programs ask the kernel themselves, and cannot be lied
to.

Disk: a tmpfs of a few MiB in a namespace of mounts of this process's own, which ends with its last process. The logs
of the controllers are there; nothing else of theirs is on a disk.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

from localcluster import debian, shell
from localcluster.errors import LocalClusterError
from localcluster.report import Report

_LIBRARIES = "/usr/lib/*/faketime/libfaketimeMT.so.1"
_CLONE_NEWNS = 0x00020000
_DISK_MEBIBYTES = 96


class Clocks:
    """Of machines by name; `set` may be called from any thread."""

    def __init__(self, folder: Path, report: Report) -> None:
        self._folder = folder
        self._library = _library(report)

    @property
    def can_jump(self) -> bool:
        return self._library is not None

    def environment(self, machine: str) -> Mapping[str, str]:
        """What a program on that machine gets. Its clock is right at first."""
        if self._library is None:
            return {}
        self.set(machine, 0.0)
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file(machine)),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, machine: str, seconds: float) -> None:
        """The clock of that machine is so much ahead of the true time."""
        self._folder.mkdir(exist_ok=True)
        new = self._folder / f"{machine}.new"
        new.write_text(f"{seconds:+.0f}s\n")
        new.rename(self._file(machine))

    def _file(self, machine: str) -> Path:
        return self._folder / f"{machine or 'here'}.clock"


class Disk:
    """A folder on a disk of its own, if this user may make one; otherwise a plain one that is never full."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.can_be_full = _mount(folder)
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Until not one byte more is left."""
        with self._filler.open("wb", buffering=0) as stream:
            try:
                while True:
                    stream.write(bytes(1 << 16))
            except OSError:
                return

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


def _library(report: Report) -> Path | None:
    if not (found := sorted(Path("/").glob(_LIBRARIES.lstrip("/")))):
        try:
            debian.install(["libfaketime"], report)
        except (LocalClusterError, shell.CommandError) as error:
            report(f"clocks cannot jump on this machine: {error}")
            return None
        found = sorted(Path("/").glob(_LIBRARIES.lstrip("/")))
    return found[0] if found else None


def _mount(folder: Path) -> bool:
    """False for a user who may not."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        return False
    size = f"size={_DISK_MEBIBYTES}m,mode=0700"
    return shell.attempt("mount", "--make-rprivate", "/") and shell.attempt(
        *("mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder))
    )
