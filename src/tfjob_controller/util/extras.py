"""What to do when a package of an optional extra is missing. Imports nothing."""

from __future__ import annotations


def install_hint(extra: str) -> str:
    """Returns the command. It names no index, where anybody could register the name of a package that is not there."""
    return f"in a clone of the project: pip install '.[{extra}]'"
