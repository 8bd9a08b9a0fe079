"""What the commands of chaos, soak and attack share: settings from the environment, logs, output and exit codes."""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from localcluster.errors import LocalClusterError
from localcluster.report import to_stderr

progress = to_stderr


def number(environ: Mapping[str, str], name: str, default: float, *, may_be_zero: bool = True) -> float:
    """Returns the number in a variable. Raises ValueError that names the variable."""
    text = environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf") or (value == 0 and not may_be_zero):
        raise ValueError(f"{name}={text}: must be a number{', 0 or more' if may_be_zero else ' above 0'}")
    return value


def seed(environ: Mapping[str, str], name: str) -> int:
    """Returns the seed in a variable, or a random one."""
    text = environ.get(name, "")
    return int(text) if text else random.SystemRandom().randrange(10**6)


def kinds(environ: Mapping[str, str], table: Mapping[str, int], what: str = "faults") -> tuple[str, ...]:
    """Returns the kinds in CHAOS_KINDS, separated by commas. Raises ValueError for one that is not in the table."""
    named = tuple(part.strip() for part in environ.get("CHAOS_KINDS", "").split(",") if part.strip())
    if unknown := set(named) - table.keys():
        raise ValueError(f"unknown kinds of {what}: {', '.join(sorted(unknown))}; known are {', '.join(table)}")
    return named


def variables(values: Mapping[str, object], named: tuple[str, ...]) -> str:
    """Returns the variables that repeat a run, for the command line of make."""
    texts = [f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items()]
    return " ".join([*texts, *([f'CHAOS_KINDS="{",".join(named)}"'] if named else [])])


def keep_logs(folder: Path, name: str) -> Path:
    """Copies the logs, which are otherwise deleted with the programs."""
    return shutil.copytree(folder, Path(tempfile.mkdtemp(prefix=f"{name}-")) / "logs")


def show_result(result: Mapping[str, Any]) -> None:
    """Prints the JSON line."""
    print(json.dumps(result), flush=True)


def main(name: str, description: str | None, run: Callable[[], bool], *errors: type[Exception]) -> int:
    """Runs a command without arguments; returns 0 if it is successful, 1 if it is not, and 2 after an error.

    `errors` are shown in one line, as a LocalClusterError and a ValueError are.
    """
    expected: tuple[type[Exception], ...] = (LocalClusterError, ValueError, *errors)
    try:
        if sys.argv[1:]:
            raise ValueError(f"takes no arguments: variables determine what it does\n{description}")
        return 0 if run() else 1
    except expected as error:
        progress(f"{name}: {error}")
        return 2
