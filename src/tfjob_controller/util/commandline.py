"""A parser of command lines that raises one line, where argparse prints its usage and exits."""

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
