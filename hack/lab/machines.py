"""Faults of machines: clocks that jump, and a full disk. Each requires a feature that not every machine has.

Clocks: libfaketime, a Debian package with a library that changes the time of day for a program. A file for each machine
contains the offset, which the program reads once a second. The monotonic clock is unchanged, as when an administrator
sets a clock. Go programs read the clock by system call and are not affected.

Disk: a tmpfs of a few MiB in a mount namespace of this process, which ends with its last process. It holds the logs of
the controllers, which write nothing else to disk.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

from localcluster import debian, shell
from localcluster.errors import LocalClusterError
from localcluster.report import Report

_LIBRARIES = "usr/lib/*/faketime/libfaketimeMT.so.1"
_CLONE_NEWNS = 0x00020000
_DISK_MEBIBYTES = 96


class Clocks:
    """The clocks of machines, by name. `set` is thread-safe."""

    def __init__(self, folder: Path, report: Report) -> None:
        self._folder = folder
        self._library = _library(report)

    @property
    def can_jump(self) -> bool:
        return self._library is not None

    def environment(self, machine: str) -> Mapping[str, str]:
        """Returns the environment variables of a program on that machine, whose clock is correct at first."""
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
        """Sets the clock of that machine to the true time plus `seconds`."""
        self._folder.mkdir(exist_ok=True)
        new = self._folder / f"{machine}.new"
        new.write_text(f"{seconds:+.0f}s\n")
        new.rename(self._file(machine))

    def _file(self, machine: str) -> Path:
        return self._folder / f"{machine or 'here'}.clock"


class Disk:
    """A folder on its own file system if the user may mount one; otherwise a plain folder that is never full."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.can_be_full = _mount(folder)
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Writes until the disk is full."""
        with self._filler.open("wb", buffering=0) as stream:
            try:
                while True:
                    stream.write(bytes(1 << 16))
            except OSError:
                return

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


def _library(report: Report) -> Path | None:
    if not (libraries := sorted(Path("/").glob(_LIBRARIES))):
        try:
            debian.install(["libfaketime"], report)
        except (LocalClusterError, shell.CommandError) as error:
            report(f"clocks cannot jump on this machine: {error}")
            return None
        libraries = sorted(Path("/").glob(_LIBRARIES))
    return libraries[0] if libraries else None


def _mount(folder: Path) -> bool:
    """Mounts the file system; False if the user may not."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        return False
    size = f"size={_DISK_MEBIBYTES}m,mode=0700"
    return shell.attempt("mount", "--make-rprivate", "/") and shell.attempt(
        *("mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder))
    )
