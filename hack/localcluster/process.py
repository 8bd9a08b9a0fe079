"""Starts processes that outlive their parent, and finds all of them again.

A pid alone does not identify a process, since it is reused, and is another program's after a reboot. A process is
therefore identified by its pid and start time (field 22 of /proc/<pid>/stat, clock ticks since boot), and records apply
only during the boot in which they were written (`boot_id`).

Besides, every process started here carries the mark of its stack in its environment, which its children inherit. So
`marked` finds what a record misses: a program that was started just before its starter was killed.

Signals are sent by a pidfd that is opened before the identity is checked, so that they never reach another process.
All functions are thread-safe.
"""

from __future__ import annotations

import functools
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

# The environment variable that marks a process as part of a stack; its value is the stack's state folder.
MARK = "LOCALCLUSTER_STACK"

# The time to wait for a process whose environment is empty, as it is during execve(2). A process that
# was started without any environment costs this time on each call.
_EXEC_SECONDS = 0.1

_children: dict[int, subprocess.Popen[bytes]] = {}


class Identity(msgspec.Struct, frozen=True):
    """The identity of one process of this boot."""

    pid: int
    start_time: int


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> Identity | None:
    """Returns the process that has this `pid` now; None if there is none, or a zombie.

    A process whose first thread has ended is shown as a zombie too, but has its files and ports until the last one has.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name may hold spaces and parentheses: what follows the last one is plain.
    fields = text.rpartition(")")[2].split()
    state, threads, start_time = fields[0], int(fields[17]), int(fields[19])
    return None if state in "ZX" and threads <= 1 else Identity(pid, start_time)


def myself() -> Identity:
    identity = identify(os.getpid())
    assert identity is not None  # noqa: S101 - a running process is in /proc
    return identity


def is_alive(identity: Identity) -> bool:
    reap(identity.pid)
    return identify(identity.pid) == identity


def spawn(
    argv: Sequence[str],
    *,
    log: Path,
    mark: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    umask: int = -1,
) -> Identity:
    """Starts a program in its own session, without Ctrl-C, with output appended to `log` (mode 0600).

    `mark` is the state folder of its stack; `env` is added to the environment; a negative `umask` is that of this
    process. Raises OSError.
    """
    environment = {**os.environ, **(env or {}), MARK: str(mark.resolve())}
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as output:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env=environment,
            start_new_session=True,
            umask=umask,
        )
    _children[child.pid] = child
    # A child that has already ended has no identity; its pid is ours until it is reaped, so 0 matches no process.
    return identify(child.pid) or Identity(child.pid, 0)


def on_host(name: str, argv: Sequence[str]) -> list[str]:
    """Returns the command with another host name, in its own UTS namespace (see `may_name_hosts`).

    The pid is that of the started process.
    """
    rename = 'echo "$0" >/proc/sys/kernel/hostname && exec "$@"'
    return [*_unshare(), "sh", "-c", rename, name, *argv]


def with_environment(variables: Mapping[str, str], argv: Sequence[str]) -> list[str]:
    """Returns the command with these variables, which the programs before it on the command line do not get."""
    pairs = [f"{name}={value}" for name, value in variables.items()]
    return ["env", *pairs, *argv] if pairs else list(argv)


@functools.cache
def may_name_hosts() -> bool:
    """Reports whether this user may create such namespaces: root may, and others on most machines."""
    try:
        return subprocess.run([*_unshare(), "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _unshare() -> list[str]:
    return ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--uts"]


def reap(pid: int) -> None:
    """Reaps a child that has ended; other processes are ignored."""
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        _children.pop(pid, None)


def marked(mark: Path) -> list[Identity]:
    """Returns all processes of this user that carry the mark."""
    wanted = f"{MARK}={mark.resolve()}".encode()
    return [identity for identity, environment in _environments() if wanted in environment]


def _environments() -> Iterable[tuple[Identity, list[bytes]]]:
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            environment = _environment(int(entry))
        except OSError:  # another user's process, or it has ended
            continue
        identity = identify(int(entry))
        if identity is not None:
            yield identity, environment


def _environment(pid: int) -> list[bytes]:
    """Returns the environment. It is empty for a zombie; a process within execve(2) is waited for. Raises OSError."""
    path = Path(f"/proc/{pid}/environ")
    deadline = time.monotonic() + _EXEC_SECONDS
    while not (text := path.read_bytes()) and _has_program(pid) and time.monotonic() < deadline:
        time.sleep(_EXEC_SECONDS / 100)
    return text.split(b"\0")


def _has_program(pid: int) -> bool:
    """Reports whether the process runs a program file. Raises OSError for kernel threads and ended processes."""
    return bool(os.readlink(f"/proc/{pid}/exe"))


def send(identity: Identity, number: signal.Signals) -> bool:
    """Sends a signal to this process; returns False if it has ended."""
    pidfd = _open(identity)
    if pidfd is None:
        return False
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
    return True


def end(identities: Iterable[Identity], *, grace_seconds: float = 0.0, timeout_seconds: float = 10.0) -> list[Identity]:
    """Ends processes, by SIGTERM if there is a grace period, then by SIGKILL; returns those that still run."""
    remaining = list(identities)
    if grace_seconds > 0:
        for identity in remaining:
            send(identity, signal.SIGTERM)
        remaining = wait_gone(remaining, grace_seconds)
    for identity in remaining:
        send(identity, signal.SIGKILL)
    return wait_gone(remaining, timeout_seconds)


def wait_gone(identities: Iterable[Identity], timeout_seconds: float) -> list[Identity]:
    """Waits until these processes have ended (a zombie has); returns those that still run."""
    deadline = time.monotonic() + timeout_seconds
    return [identity for identity in identities if not _wait_one(identity, deadline)]


def _wait_one(identity: Identity, deadline: float) -> bool:
    pidfd = _open(identity)
    if pidfd is not None:
        try:
            poller = select.poll()
            poller.register(pidfd, select.POLLIN)
            poller.poll(max(0.0, deadline - time.monotonic()) * 1000)
        finally:
            os.close(pidfd)
    return not is_alive(identity)


def _open(identity: Identity) -> int | None:
    """Returns a pidfd of this process; None if it has ended."""
    try:
        pidfd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    if identify(identity.pid) != identity:
        os.close(pidfd)
        return None
    return pidfd
