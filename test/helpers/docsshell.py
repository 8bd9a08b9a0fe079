"""A reader's shell: a folder that looks like a clone, the programs that the pages call, and a kubeconfig.

Each command runs in a bash of its own, with the folder and the variables of the previous command. `follow` compares its
output with the page: the columns of tables, and every other line without figures.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from helpers import interrupt
from helpers.docs import ROOT, Command
from helpers.kubectl import Answer
from helpers.poll import eventually
from localcluster import binaries

# This limit only ends commands that hang.
_TIMEOUT_SECONDS = 600
# Commands that run until they are interrupted are ended after their first output.
_ENDLESS = re.compile(
    r"kubectl\s(?:[^|;&\n]*\s)?(?:get|events)\s[^|;&\n]*(?:-w|--watch)\b"
    r"|kubectl\s(?:[^|;&\n]*\s)?logs\s[^|;&\n]*(?:-f|--follow)\b"
    r"|(?:\S*/)?tfjob-controller\s(?:run|extender)\b(?![^|;&\n]*--help)"
)
_CLONED = (
    "src",
    "hack",
    "docs",
    "Makefile",
    "Dockerfile",
    "setup.cfg",
    "pyproject.toml",
    "CHANGELOG.md",
    ".venv",
    ".git",
)
_VENV_PROGRAMS = ("tfjob-controller", "kubectl-tfjob", "kubectl_complete-tfjob", "python")
_KEPT = ("LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME")
# A controller that a page starts listens on any free port.
_PORTS = {
    "TFJOB_CONTROLLER_METRICS_BIND_ADDRESS": "127.0.0.1:0",
    "TFJOB_CONTROLLER_HEALTH_PROBE_BIND_ADDRESS": "127.0.0.1:0",
}
_UNTIL_IT_SPEAKS = f"""#!{sys.executable}
import signal, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
said = process.stdout.readline()
sys.stdout.buffer.write(said)
sys.stdout.flush()
process.send_signal(signal.SIGTERM)
process.stdout.read()
process.wait()
sys.exit(0 if said else process.returncode or 1)
"""
# How long commands that only read are repeated until the output is as on the page: pods need a moment.
PATIENCE_SECONDS = 300.0
LOOKS = ("get", "describe", "logs", "events", "wait", "rollout", "top", "tfjob list", "tfjob describe", "tfjob explain",
         "tfjob logs", "tfjob queue", "tfjob top")  # fmt: skip
_HEADER = re.compile(r"^[A-Z][A-Z ()./-]*$")
# Parts that differ from run to run, or that the page leaves out.
_VARIES = re.compile(r"\d|…")


class Shell:
    """See the module.

    `home` is the reader's home folder, the commands run in `folder`; `HOME/.kube/config` is a copy.
    """

    def __init__(self, scratch: Path, kubeconfig: Path) -> None:
        self.folder, home, programs = scratch / "clone", scratch / "home", scratch / "bin"
        self._state = scratch / "state"
        for path in (self.folder, home / ".kube", programs):
            path.mkdir(parents=True)
        shutil.copytree(ROOT / "manifests", self.folder / "manifests")
        for name in _CLONED:
            (self.folder / name).symlink_to(ROOT / name)
        _fill(programs)
        config = home / ".kube" / "config"
        config.touch(mode=0o600)
        config.write_bytes(kubeconfig.read_bytes())
        self._environment = {
            **{name: os.environ[name] for name in _KEPT if name in os.environ},
            **_PORTS,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "KUBECONFIG": str(config),
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip

    def run(self, command: Command, replaced: Mapping[str, str]) -> Answer:
        """Runs the command of the page after the replacements of `replaced`."""
        text = command.text
        for old, new in replaced.items():
            text = text.replace(old, new)
        text = bounded(text)
        # A command that tests the previous exit code must run after a failure too.
        stops = "" if "case $?" in text else "set -e\n"
        keep = f"trap 'declare -px >{self._state}; echo cd \"$PWD\" >>{self._state}' EXIT"
        script = f"[ ! -e {self._state} ] || . {self._state}\nset -auo pipefail\n{stops}{keep}\n{text}\n"
        started = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=interrupt.allow,
        )
        try:
            out, error = started.communicate(timeout=_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            out, error = started.communicate()
            return Answer(128 + signal.SIGKILL, out, f"{error}\nnot done after {_TIMEOUT_SECONDS} s")
        return Answer(started.returncode, out, error)


def run_all(shell: Shell, found: Sequence[Command]) -> list[str]:
    """Runs the commands of a page unchanged; returns the output of each."""
    assert found
    said = [(command, shell.run(command, {})) for command in found]
    assert [f"{command.place}\n{answer.error}" for command, answer in said if answer.code] == []
    return [answer.out for _, answer in said]


def follow(shell: Shell, command: Command, replaced: Mapping[str, str], *, has_logs: bool) -> None:
    """Runs the command; repeats a command that only reads until its output is as shown.

    `replaced` has the values for the reader's placeholders. `has_logs`: programs run in the pods, and print.
    """
    problems = [_wrong(command, shell.run(command, replaced), has_logs=has_logs)]

    def is_right() -> bool:
        problems.append(_wrong(command, shell.run(command, replaced), has_logs=has_logs))
        return not problems[-1]

    if problems[-1] and _only_looks(command):
        with contextlib.suppress(AssertionError):  # the last output explains more
            eventually(is_right, PATIENCE_SECONDS, 0.2)
    assert not problems[-1], problems[-1]


def _wrong(command: Command, answer: Answer, *, has_logs: bool) -> str:
    """Returns the differences from the page; "" if there are none."""
    if answer.code:
        return f"{command.place}\nended with {answer.code}:\n{answer.out}\n{answer.error}"
    says_nothing = not has_logs and re.search(r"\blogs\b", command.text)
    missing = [] if says_nothing else missing_from(answer.out, command.shown)
    return f"{command.place}\ndid not print {missing}, but:\n{answer.out}\n{answer.error}" if missing else ""


def _only_looks(command: Command) -> bool:
    words = [word for word in command.text.split() if not word.startswith("-")]
    return words[0] == "kubectl" and any(f"{' '.join(words[1:])} ".startswith(f"{look} ") for look in LOOKS)


def missing_from(out: str, shown: Sequence[str]) -> list[str]:
    """Returns the lines of `shown` that the output lacks; several blanks count as one."""
    lines = [" ".join(line.split()) for line in shown if line.strip()]
    printed = {" ".join(line.split()) for line in out.splitlines()}
    if lines and is_header(lines[0]):
        return [] if lines[0] in printed else lines[:1]
    return [line for line in lines if not _VARIES.search(line) and line not in printed]


def is_header(line: str) -> bool:
    return _HEADER.match(line) is not None and " " in line


def bounded(text: str) -> str:
    """Returns the command with a limit that ends it."""
    return _ENDLESS.sub(lambda match: f"until-it-speaks {match[0]}", text)


def _fill(programs: Path) -> None:
    (programs / "kubectl").symlink_to(binaries.ensure("kubectl"))
    for name in _VENV_PROGRAMS:
        _script(programs / name, f'#!/bin/sh\nexec {Path(sys.executable).parent / name} "$@"\n')
    _script(programs / "until-it-speaks", _UNTIL_IT_SPEAKS)


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
