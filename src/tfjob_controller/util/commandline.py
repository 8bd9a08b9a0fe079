"""Errors of command lines, one line each: what cannot be used, and what is not installed."""

from __future__ import annotations

import argparse
from typing import NoReturn


class UsageError(Exception):
    """The command line cannot be used; one line. `usage` holds further lines, which show how it can be used."""

    def __init__(self, message: str, usage: str = "") -> None:
        super().__init__(message)
        self.usage = usage


class Parser(argparse.ArgumentParser):
    """Overrides `error`, which is argparse's only public way to report a problem differently."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see `{self.prog} --help`)")


def install_hint(extra: str) -> str:
    """Returns what to do where a package of an optional extra is missing.

    It names no index, where anybody could register the name of a package that is not there.
    """
    return f"in a clone of the project: pip install '.[{extra}]'"
