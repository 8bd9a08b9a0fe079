"""The composition root: makes every part, starts them in order and stops them in order."""

from __future__ import annotations

from tfjob_controller.options import RunOptions


class StartError(Exception):
    """The controller cannot start as it was told to: one line that says what to mend."""


def run(options: RunOptions) -> int:
    """Run until told to stop; returns the exit code."""
    raise StartError("not there yet")
