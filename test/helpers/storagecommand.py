"""`tfjob-controller initialize` and `export` as processes with an environment of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.forkedprogram import ForkedProgram
from helpers.poll import eventually

# This limit only ends commands that hang.
_DEADLINE_SECONDS = 120.0
MARKER = ".tfjob-initialized.json"


@dataclass(frozen=True, slots=True)
class Ended:
    """The exit code of a command, and its standard error."""

    code: int
    said: str

    @property
    def last_line(self) -> str:
        return self.said.splitlines()[-1]

    @property
    def events(self) -> list[dict[str, Any]]:
        """Returns the lines of the log."""
        return [json.loads(line) for line in self.said.splitlines() if line.startswith("{")]

    def event(self, name: str) -> dict[str, Any]:
        (found,) = [event for event in self.events if event["event"] == name]
        return found


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> Ended:
    with Running(arguments, environ) as running:
        ended = running.end()
        assert running.out == ""
    return ended


def run_afresh(arguments: Sequence[str], environ: Mapping[str, str]) -> Ended:
    """Like `run`, in a new Python process without imported modules."""
    argv = [sys.executable, "-m", "tfjob_controller", *arguments]
    done = subprocess.run(
        argv, env=_environ(environ), capture_output=True, text=True, timeout=_DEADLINE_SECONDS, check=False
    )
    assert done.stdout == ""
    return Ended(done.returncode, done.stderr)


def initialize(what: str, uri: str, target: Path, environ: Mapping[str, str] | None = None, *flags: str) -> Ended:
    return run(["initialize", what, f"--target={target}", *flags], {"STORAGE_URI": uri, **(environ or {})})


def export(source: Path, uri: str, environ: Mapping[str, str] | None = None, *flags: str) -> Ended:
    return run(["export", f"--source={source}", *flags], {"STORAGE_URI": uri, **(environ or {})})


class Running:
    """A started command; use as a context manager, which kills it at the end."""

    def __init__(self, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="storage-command-")
        self._out, self._error = (Path(self._folder.name) / name for name in ("out", "error"))
        self._program = ForkedProgram(arguments, out=self._out, error=self._error, environ=_environ(environ))

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()
        self._folder.cleanup()

    @property
    def out(self) -> str:
        """Returns its standard output so far."""
        return self._out.read_text() if self._out.exists() else ""

    @property
    def said(self) -> str:
        """Returns its standard error so far."""
        return self._error.read_text() if self._error.exists() else ""

    @property
    def pid(self) -> int:
        return self._program.pid

    def signal(self, number: signal.Signals) -> Ended:
        """Sends the signal, and waits for the end."""
        self._program.signal(number)
        return self.end()

    def end(self) -> Ended:
        """Waits for the end."""
        code = self._program.wait(_DEADLINE_SECONDS)
        assert code is not None, "it hangs"
        return Ended(code, self._error.read_text())


def await_part(folder: Path, at_least: int) -> Path:
    """Waits until the partial file in a folder has so many bytes; returns its path."""

    def grown() -> Path | None:
        parts = [path for path in folder.rglob(".tfjob-*.part") if path.exists() and path.stat().st_size >= at_least]
        return parts[0] if parts else None

    found = eventually(grown)
    assert found is not None
    return found


def content_of(folder: Path) -> dict[str, bytes]:
    """Returns all files of a folder by their relative names, without the marker."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    files.pop(MARKER, None)
    return files


def _environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without this machine's credentials, proxies and instance metadata."""
    own = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true", "LANG": "C.UTF-8"}
    return {**own, **environ}
