"""The processes of a job's containers, which this machine sees, and their end by SIGKILL.

A process belongs to a job of this run if its environment says so (`CHAOS_RUN`); others are never touched.
"""

from __future__ import annotations

import signal
from pathlib import Path

from localcluster import process
from localcluster.process import Identity

RUN = "CHAOS_RUN"
# Part of the command line of each program.
PROGRAM, SAVER, UPLOAD = b"python3\0-c\0", b"checkpoint\0save\0", b"checkpoint\0upload\0"


def find(owner: str, command: bytes) -> list[Identity]:
    """Returns the processes of an owner with this in their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if command not in (folder / "cmdline").read_bytes():
                continue
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"{RUN}={owner}".encode() in environment and (identity := process.identify(int(folder.name))):
            found.append(identity)
    return found


def kill(identities: list[Identity]) -> int:
    """Kills processes at once; returns how many there were."""
    return sum(process.send(each, signal.SIGKILL) for each in identities)
