"""The errors of this package."""

from __future__ import annotations


class LocalClusterError(Exception):
    """An error in one line, with its remedy; the command prints it and exits with `exit_code`."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
