"""Builds programs from the Go modules that this repository pins, once per user and version.

All missing programs of a module are built by one `go build`, which shares their packages and uses all cores. A lock per
module lets one run build while the others wait; a program appears in the cache in one rename, so that it is always
complete.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from localcluster.errors import LocalClusterError
from localcluster.gotoolchain import go_environment, go_of, parse_version
from localcluster.kubernetesversions import KUBERNETES
from localcluster.locks import locked
from localcluster.program import Program, cache_path, cache_root, is_executable
from localcluster.report import Report

CONTAINERD = "github.com/containerd/containerd/v2"
COSCHEDULING = "sigs.k8s.io/scheduler-plugins"
KUEUE = "sigs.k8s.io/kueue"
TRAINING_OPERATOR = "github.com/kubeflow/training-operator"
VOLCANO = "volcano.sh/volcano"
_REPORT_SECONDS = 30.0
# The programs are stripped, so debug information would be unused.
_COMPILER_FLAGS = ("-trimpath", "-mod=readonly", "-gcflags=all=-dwarf=false")


def build_missing(programs: Iterable[Program], report: Report) -> None:
    """Builds the programs that the cache lacks. Raises LocalClusterError."""
    for batch in _batches(programs):
        module = batch[0].folder
        waiting = f"waiting for another run that builds the programs of hack/{module}"
        with locked(cache_root() / "bin" / f".{_file_name(batch[0])}.lock", functools.partial(report, waiting)):
            # Another run may have built them while this one waited.
            if missing := _missing(batch):
                _build(missing, report)


def _batches(programs: Iterable[Program]) -> list[list[Program]]:
    """Groups the programs that one `go build` can build: same module, same cgo setting and tags."""
    batches: dict[tuple[str, bool, str], list[Program]] = {}
    for program in programs:
        batches.setdefault((program.folder, program.cgo, program.tags), []).append(program)
    return list(batches.values())


def _missing(batch: list[Program]) -> list[Program]:
    return [program for program in batch if not is_executable(cache_path(program))]


def _file_name(program: Program) -> str:
    """Returns the name of the module's folder as a part of a file's name."""
    return program.folder.replace("/", "-")


def _build(batch: list[Program], report: Report) -> None:
    first = batch[0]
    _check_platform(first)
    go = go_of(first.module_dir, report)
    names = ", ".join(program.name for program in batch)
    report(f"building from source: {names}")
    started = time.monotonic()
    # Beside its destination, so that the rename stays in one file system. A build that was killed may have left it.
    place, prefix = cache_root() / "bin", f".build-{_file_name(first)}-"
    for left in place.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place) as folder:
        _run_go(_build_command(go, batch, Path(folder)), first, names, report)
        for program in batch:
            cache_path(program).parent.mkdir(exist_ok=True)
            (Path(folder) / _output_name(program)).replace(cache_path(program))
    report(f"built {names} in {time.monotonic() - started:.0f} s, kept in {place}")


def _check_platform(program: Program) -> None:
    if program.cgo and shutil.which("cc") is None:
        raise LocalClusterError(
            f"{program.name} needs a C compiler: apt install build-essential pkg-config libseccomp-dev"
        )


def _build_command(go: Path, batch: list[Program], folder: Path) -> list[str]:
    # -v prints each package when its compilation starts.
    flags = ["-v", *_COMPILER_FLAGS, "-ldflags", _link_flags(None)]
    for requirement in sorted({program.requirement for program in batch}):
        stamped = next(program for program in batch if program.requirement == requirement)
        if (words := _link_flags(stamped)) != _link_flags(None):
            flags += ["-ldflags", f"{requirement}/...={words}"]
    flags += ["-tags", batch[0].tags] if batch[0].tags else []
    return [str(go), "build", *flags, "-o", f"{folder}/", *(program.package for program in batch)]


def _link_flags(program: Program | None) -> str:
    flags = ["-s", "-w"]
    if program is not None and program.requirement == KUBERNETES:
        version = program.version
        major, minor, _ = parse_version(version)
        stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        # Two packages contain the version: one for clients and nodes, another one for servers.
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += [f"-X {package}.{key}={value}" for key, value in stamps.items()]
    elif program is not None and program.requirement == CONTAINERD:
        flags.append(f"-X {CONTAINERD}/version.Version={program.version}")
    elif program is not None and program.requirement == KUEUE:
        flags.append(f"-X {KUEUE}/pkg/version.GitVersion={program.version}")
    return " ".join(flags)


def _output_name(program: Program) -> str:
    """Returns the name that go gives the program: the last element of its path that is no version."""
    if program.package == ".":  # the module itself, which is named like its folder
        return program.folder
    elements = [element for element in program.package.split("/") if not re.fullmatch(r"v\d+", element)]
    return elements[-1]


def _run_go(command: list[str], program: Program, names: str, report: Report) -> None:
    build = subprocess.Popen(
        command,
        cwd=program.module_dir,
        env={**go_environment(), "CGO_ENABLED": "1" if program.cgo else "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with build:
        try:
            lines = _reported(build.stdout or (), report)
        except BaseException:
            os.killpg(build.pid, signal.SIGKILL)  # Ctrl-C also ends the compilers
            raise
    if build.returncode:
        raise LocalClusterError(f"building {names} failed: {_reason(lines)}")


def _reported(output: Iterable[str], report: Report) -> list[str]:
    """Returns the lines of `go build -v`, and reports every half minute how many packages it has compiled."""
    lines: list[str] = []
    shown = time.monotonic()
    for line in output:
        lines.append(line.rstrip())
        if time.monotonic() - shown > _REPORT_SECONDS:
            shown = time.monotonic()
            report(f"  {sum(': ' not in line for line in lines):,} packages compiled")
    return lines


def _reason(lines: list[str]) -> str:
    """Returns the most informative line of a failed build."""
    telling = [line for line in lines if ": " in line and not line.startswith("go: downloading")]
    return telling[-1] if telling else (lines[-1] if lines else "go printed nothing")
