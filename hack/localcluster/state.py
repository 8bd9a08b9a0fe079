"""The record of a stack, and whether it still applies.

A stack has one folder (mode 0700): `state.json`, the kubeconfig and keys (mode 0600), `etcd/`, `logs/`. Stopping
it removes everything but the logs. `state.json` names the boot in which it was written: after a reboot its processes do
not exist, whatever its pids are, and the stack is `STALE`.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from localcluster import locks, process
from localcluster.errors import LocalClusterError
from localcluster.process import Identity

DEFAULT_NAME = "default"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
# Files that remain after a stop: the logs, and the lock that serializes with the next start.
_KEPT = ("logs", "lock", "command.lock")


class ProgramRecord(msgspec.Struct):
    """One program of a stack: its command line and its process."""

    argv: list[str]
    log: str
    identity: Identity | None = None


class StackState(msgspec.Struct):
    """The whole record. `owner` is the process that the stack must not outlive; None: it runs until it is stopped.

    `kubernetes` is the version of the control plane, such as v1.36.3; older records lack it.
    """

    boot_id: str
    created: str
    kubeconfig: str
    server: str
    kubernetes: str = ""
    ready: bool = False
    owner: Identity | None = None
    health: dict[str, str] = {}
    programs: dict[str, ProgramRecord] = {}


class Condition(enum.Enum):
    """The state of a stack according to its record."""

    ABSENT = "absent"  # nothing was started, or the stack was stopped
    STARTING = "starting"  # another process changes the stack, or was killed meanwhile
    RUNNING = "running"
    BROKEN = "broken"  # of this boot, but some programs have ended
    STALE = "stale"  # from before a reboot


def state_root() -> Path:
    """Returns the folder of stacks: `$XDG_STATE_HOME/tfjob-controller`, by default under ~/.local/state."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "tfjob-controller"


def stack_dir(name: str = DEFAULT_NAME) -> Path:
    if not _NAME.fullmatch(name):
        raise LocalClusterError(
            f"{name!r} cannot name a stack: use up to 40 lower-case letters, digits and dashes", exit_code=2
        )
    return state_root() / name


def make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def write_private(path: Path, content: bytes) -> None:
    """Replaces a file atomically; only its owner can read it at any time."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    part.replace(path)


def read(folder: Path) -> StackState | None:
    """Returns the record; None if there is none or it cannot be read (records are written atomically)."""
    try:
        return msgspec.json.decode((folder / "state.json").read_bytes(), type=StackState)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def write(folder: Path, state: StackState) -> None:
    write_private(folder / "state.json", msgspec.json.format(msgspec.json.encode(state)))


def condition(state: StackState | None) -> Condition:
    if state is None:
        return Condition.ABSENT
    if state.boot_id != process.boot_id():
        return Condition.STALE
    if not state.ready:
        return Condition.STARTING
    identities = [record.identity for record in state.programs.values()]
    alive = all(identity is not None and process.is_alive(identity) for identity in identities)
    return Condition.RUNNING if alive else Condition.BROKEN


def clear(folder: Path) -> None:
    """Removes what a stopped stack no longer needs: data, keys, and the record last."""
    with contextlib.suppress(FileNotFoundError):
        for entry in list(folder.iterdir()):
            if entry.name not in (*_KEPT, "state.json"):
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    (folder / "state.json").unlink(missing_ok=True)


def locked(
    folder: Path, name: str = "lock", on_wait: Callable[[], None] | None = None
) -> contextlib.AbstractContextManager[None]:
    """Locks a stack for changes.

    There are two locks: a command (`command.lock`: up, down, ...) may hold its own while it changes the control plane
    (`lock`).
    """
    make_private(folder)
    return locks.locked(folder / name, on_wait)
