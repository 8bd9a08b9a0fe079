"""What all commands share: settings from environment variables, progress, logs of failed runs, and exit codes."""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, field, fields
from pathlib import Path
from typing import Any, Self

from localcluster.errors import LocalClusterError
from localcluster.report import to_stderr

_READY_SECONDS, _POLL_SECONDS = 240.0, 0.05

progress = to_stderr


def variable(name: str, default: float | str, *, may_be_zero: bool = True) -> Any:
    """Declares a field of `Settings`: a number or a text, of the type of its default."""
    return field(default=default, metadata={"name": name, "may_be_zero": may_be_zero})


def seed_variable(name: str) -> Any:
    """Declares a field of `Settings`: the seed of all random choices, by default a random number."""
    return field(default=0, metadata={"name": name, "is_seed": True})


def kinds_variable(table: Mapping[str, int], noun: str = "faults") -> Any:
    """Declares a field of `Settings`: kinds of the table, separated by commas; none for all."""
    return field(default=(), metadata={"name": "CHAOS_KINDS", "table": table, "noun": noun})


class Settings:
    """The base of the settings of a command, a frozen dataclass of variables."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """Returns the settings of the environment. Raises ValueError that names the variable."""
        texts = {declared.name: environ.get(declared.metadata["name"]) or "" for declared in _fields(cls)}
        return cls(**{declared.name: _value(texts[declared.name], declared) for declared in _fields(cls)})

    @property
    def variables(self) -> str:
        """The variables that repeat the run, for the command line of make: the seed, and what is not the default."""
        texts = []
        for declared in _fields(type(self)):
            value = getattr(self, declared.name)
            if declared.metadata.get("is_seed") or value != declared.default:
                text = f'"{",".join(value)}"' if isinstance(value, tuple) else str(value)
                texts.append(f"{declared.metadata['name']}={text}")
        return " ".join(texts)


def _fields(cls: Any) -> Sequence[Field[Any]]:
    return fields(cls)


def _value(text: str, declared: Any) -> object:
    metadata = declared.metadata
    if metadata.get("is_seed"):
        return int(text) if text else random.SystemRandom().randrange(10**6)
    if "table" in metadata:
        return _kinds(text, metadata["table"], metadata["noun"])
    if isinstance(declared.default, str):
        return text or declared.default
    return _number(metadata["name"], text, metadata["may_be_zero"], declared.default)


def _number(name: str, text: str, may_be_zero: bool, default: float) -> float:
    try:
        value = type(default)(text) if text else default
    except ValueError:
        value = -1
    if not 0 <= value < float("inf") or (value == 0 and not may_be_zero):
        raise ValueError(f"{name}={text}: must be a number{', 0 or more' if may_be_zero else ' above 0'}")
    return value


def _kinds(text: str, table: Mapping[str, int], noun: str) -> tuple[str, ...]:
    kinds = tuple(part.strip() for part in text.split(",") if part.strip())
    if unknown := set(kinds) - table.keys():
        raise ValueError(f"unknown kinds of {noun}: {', '.join(sorted(unknown))}; known are {', '.join(table)}")
    return kinds


class Interval:
    """Tells when something is due that happens at most once in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = float("-inf")

    def is_due(self) -> bool:
        is_due = time.monotonic() - self._last >= self._seconds
        if is_due:
            self._last = time.monotonic()
        return is_due


class Patience:
    """Tells when a state has not changed for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._state: object = None
        self._changed_at = time.monotonic()

    def is_over(self, state: object) -> bool:
        if state != self._state:
            self._state, self._changed_at = state, time.monotonic()
        return time.monotonic() - self._changed_at > self._seconds


def wait(condition: Callable[[], bool], message: str) -> None:
    """Waits for a condition. Raises LocalClusterError with this message after some minutes."""
    deadline = time.monotonic() + _READY_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise LocalClusterError(message)
        time.sleep(_POLL_SECONDS)


def keep_logs(name: str, *folders: Path) -> Path:
    """Copies the logs, which are otherwise deleted with the programs, and returns the new folder."""
    kept = Path(tempfile.mkdtemp(prefix=f"{name}-logs-"))
    for folder in folders:
        shutil.copytree(folder, kept / folder.name)
    return kept


def show_result(result: Mapping[str, Any]) -> None:
    """Prints the JSON line."""
    print(json.dumps(result), flush=True)


def main(name: str, description: str | None, run: Callable[[], bool]) -> int:
    """Runs a command without arguments; returns 0 if it is successful, 1 if it is not, and 2 after an error."""
    # Everything that was started is ended, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if sys.argv[1:]:
            raise ValueError(f"takes no arguments: variables determine what it does\n{description}")
        return 0 if run() else 1
    except (LocalClusterError, ValueError) as error:
        progress(f"{name}: {error}")
        return 2
