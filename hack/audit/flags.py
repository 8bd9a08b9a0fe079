"""Flags that signal handlers set for the rest of a program."""

from __future__ import annotations


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
