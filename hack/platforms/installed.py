"""Installs the base requirements and this project's wheel into a fresh environment, and runs what is in it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from platforms.wheels import REPOSITORY, UV

_CLIENT = "from tfjob_controller.client import Client, tfjob, trainjob; import tfjob_controller.kubectl.commands.follow"
# An address at which nothing listens: the request is made, and fails.
_KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


class InstalledError(Exception):
    """What was installed does not work; the message has its output."""


def check(python: str = sys.executable) -> list[str]:
    """Returns what was run, one line each. Raises InstalledError."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = folder / "environment"
        wheel = _wheel(folder / "dist")
        _run([str(UV), "venv", "--quiet", "--python", python, str(environment)])
        _run([str(UV), "pip", "install", "--quiet", "--python", str(environment), "--only-binary=:all:", str(wheel)])
        (folder / "kubeconfig").write_text(_KUBECONFIG, encoding="utf-8")
        programs = environment / "bin"
        cases = (
            ([str(programs / "kubectl-tfjob"), "--help"], 0, "submit"),
            ([str(programs / "kubectl-tfjob"), "list", f"--kubeconfig={folder / 'kubeconfig'}"], 1, "cannot connect"),
            ([str(programs / "kubectl-tfjob"), "dashboard"], 1, "tfjob-controller[dashboard]"),
            ([str(programs / "tfjob-controller"), "run"], 2, "tfjob-controller[operator]"),
            ([str(programs / "python"), "-c", _CLIENT], 0, ""),
        )
        return [_expect(command, code, words) for command, code, words in cases]


def _wheel(folder: Path) -> Path:
    _run([str(UV), "build", "--quiet", "--wheel", "--out-dir", str(folder), str(REPOSITORY)])
    (found,) = folder.glob("*.whl")
    return found


def _expect(command: list[str], code: int, words: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=_environment())
    said = done.stdout + done.stderr
    shown = " ".join([Path(command[0]).name, *command[1:2]])
    if done.returncode != code or words not in said or "Traceback" in said:
        raise InstalledError(f"{shown}: exit code {done.returncode}, expected {code} and {words!r}:\n{said}")
    return f"{shown}: exit code {code}"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    if done.returncode:
        raise InstalledError(f"{' '.join(command[:3])}: {done.stderr.strip()}")


def _environment() -> dict[str, str]:
    """Without what would find packages or a cluster of this machine."""
    dropped = ("PYTHONPATH", "KUBECONFIG", "PIP_FIND_LINKS", "UV_FIND_LINKS")
    return {name: value for name, value in os.environ.items() if name not in dropped}
