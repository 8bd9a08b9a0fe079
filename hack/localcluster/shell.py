"""Runs tools of the machine (ip, mount, tar, …) and reports errors in one line."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from localcluster.errors import LocalClusterError


class CommandError(LocalClusterError):
    """A tool failed; the message contains its name and the end of its output."""


def run(*argv: str | Path, stdin: str | None = None, timeout_seconds: float = 600.0, cwd: Path | None = None) -> str:
    """Runs a tool and returns its standard output. Raises CommandError if it is missing, fails, or takes too long."""
    command = [str(word) for word in argv]
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout_seconds, check=True, cwd=cwd
        )
    except FileNotFoundError as error:
        raise CommandError(f"{command[0]}: not found on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{_shown(command)}: did not end within {timeout_seconds:g} s") from error
    except subprocess.CalledProcessError as error:
        words = (error.stderr or error.stdout or "").strip().splitlines()
        last = words[-1] if words else "no message"
        raise CommandError(f"{_shown(command)}: exit code {error.returncode}: {last}") from error
    return done.stdout


def attempt(*argv: str | Path) -> bool:
    """Runs a tool and returns whether it succeeded. For clean-up, where missing objects are no error."""
    try:
        run(*argv, timeout_seconds=60.0)
    except CommandError:
        return False
    return True


def _shown(command: Sequence[str]) -> str:
    return " ".join(command[:6])
