"""The signals that an auditor's process receives: the end of its watch, and outages."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field


class Flag:
    """Set by a signal handler, in the thread that reads it.

    A threading.Event does not work here: the signal may arrive while that thread holds the Event's lock, for which the
    handler would then wait forever.
    """

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        self.is_set = True

    def take(self) -> bool:
        """Returns whether the flag was set, and clears it."""
        was_set, self.is_set = self.is_set, False
        return was_set


@dataclass(frozen=True, slots=True)
class Signals:
    """SIGTERM and SIGINT stop the auditor. SIGUSR1 reports an outage, every second while it lasts."""

    stop: Flag = field(default_factory=Flag)
    outage: Flag = field(default_factory=Flag)

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop.set())
        signal.signal(signal.SIGUSR1, lambda *_: self.outage.set())
