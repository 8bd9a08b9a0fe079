"""The errors of this package, as sentences for people."""

from __future__ import annotations


class LocalClusterError(Exception):
    """One line that says what happened and what to do; the command prints it and ends with `exit_code`."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
