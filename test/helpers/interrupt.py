"""Allows tests to interrupt a program that they have started."""

from __future__ import annotations

import signal


def allow() -> None:
    """As `preexec_fn`, restores the default action of Ctrl-C, which background jobs of a shell, as in CI, ignore."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
