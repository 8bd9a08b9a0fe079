"""What signal handlers tell the rest of a program."""

from __future__ import annotations


class Flag:
    """Set by a signal handler, in the thread that looks at it.

    No threading.Event: the signal may come while that thread holds the Event's lock, and the handler would wait for it
    for ever.
    """

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        self.is_set = True

    def take(self) -> bool:
        """Whether it was set; it is not any more."""
        was_set, self.is_set = self.is_set, False
        return was_set
