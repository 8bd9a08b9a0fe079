"""Runs a program of this project as if it were installed elsewhere: with fewer packages, or on another system.

`python otherplatform.py SETTING... -- CODE` runs the code. A SETTING is

    base             only packages that setup.cfg requires without an extra, and what those require
    extra=NAME       also those of the extra
    windows          without the modules and names of the standard library that Windows does not have

The modules are the real ones; what would be missing cannot be imported.
"""

from __future__ import annotations

import importlib.abc
import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from importlib import metadata
from importlib.machinery import ModuleSpec
from types import ModuleType

PROJECT = "tfjob-controller"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_OF_EXTRA = re.compile(r"extra == ['\"]([^'\"]+)['\"]")
# Modules of the standard library that CPython for Windows lacks, as its documentation says.
POSIX_MODULES = frozenset(("curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"))  # fmt: skip # noqa: E501
POSIX_NAMES: dict[ModuleType, tuple[str, ...]] = {
    os: (
        *("chown", "fchmod", "fchown", "fork", "forkpty", "getegid", "geteuid", "getgid", "getgroups", "getpgid"),
        *("getpgrp", "getuid", "killpg", "mkfifo", "nice", "pread", "pwrite", "setsid", "sysconf", "wait3"),
        *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC"),
    ),
    signal: (
        *("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGTSTP", "SIGUSR1", "SIGUSR2", "SIGWINCH"),
        *("alarm", "pause", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait"),
    ),
    socket: ("AF_UNIX", "SO_REUSEPORT", "MSG_DONTWAIT", "TCP_KEEPIDLE"),
    select: ("epoll", "poll"),
    time: ("tzset",),
}


class Missing(importlib.abc.MetaPathFinder):
    """Refuses the import of these top-level modules."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named '{fullname}'", name=fullname)
        return None


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(extras: Sequence[str] = ()) -> set[str]:
    """The distributions of the project's requirements, and of theirs."""
    found, pending = {PROJECT}, _requirements(PROJECT, extras)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += _requirements(name, ())
    return found


def _requirements(distribution: str, extras: Sequence[str]) -> list[str]:
    try:
        lines = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:  # for another platform, or another Python
        return []
    found = []
    for line in lines:
        extra = _OF_EXTRA.search(line)
        if extra is None or extra[1] in extras:
            name = _NAME.match(line)
            assert name is not None, line
            found.append(normalized(name[0]))
    return found


def modules_without(distributions: set[str]) -> set[str]:
    """The top-level modules that none of these distributions installs."""
    return {
        module
        for module, owners in metadata.packages_distributions().items()
        if not distributions & {normalized(owner) for owner in owners}
    }


def become_windows() -> None:
    # The standard library of this machine has chosen what it needs from POSIX once these are imported.
    import asyncio
    import subprocess
    import tempfile
    import webbrowser

    del asyncio, subprocess, tempfile, webbrowser
    for name in POSIX_MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Missing(POSIX_MODULES - {"posix"}))
    for module, names in POSIX_NAMES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)


def main() -> None:
    at = sys.argv.index("--")
    settings, code = sys.argv[1:at], sys.argv[at + 1]
    extras = [each.removeprefix("extra=") for each in settings if each.startswith("extra=")]
    if "base" in settings:
        sys.meta_path.insert(0, Missing(modules_without(required(extras))))
    if "windows" in settings:
        become_windows()
    sys.argv = sys.argv[:1]
    exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
