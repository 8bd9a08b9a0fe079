"""Waits for a program of this project: until `/readyz` succeeds, the program ends, or the time limit is reached."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path

from demo.follow import DemoError
from localcluster import process
from localcluster.process import Identity

TIMEOUT_SECONDS = 60
_POLL_SECONDS = 0.1


def wait_ready(identity: Identity, address: str, name: str, log: Path, begin: int = 0) -> None:
    """Raises `DemoError` with the last line of `log` after byte `begin`, or the reason why it is not ready."""
    deadline, answer = time.monotonic() + TIMEOUT_SECONDS, "nothing"
    while time.monotonic() < deadline:
        if not process.is_alive(identity):
            raise DemoError(f"{name} ended: {_last_line(log, begin)} (log: {log})")
        try:
            with urllib.request.urlopen(f"http://{address}/readyz", timeout=2):
                return
        except urllib.error.HTTPError as error:
            answer = error.read().decode(errors="replace").strip()
        except OSError as error:
            answer = str(error)
        time.sleep(_POLL_SECONDS)
    raise DemoError(f"{name} was not ready within {TIMEOUT_SECONDS} s: {answer} (log: {log})")


def _last_line(log: Path, begin: int) -> str:
    lines = log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
