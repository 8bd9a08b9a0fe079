"""For programs that a test starts and means to interrupt."""

from __future__ import annotations

import signal


def allow() -> None:
    """As `preexec_fn`: Ctrl-C counts again. A shell's background job, as CI may be one, is started with it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
