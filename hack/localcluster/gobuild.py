"""Builds programs from the Go modules that this repository pins, once per user and version.

All missing programs of a module are built by one `go build`, which shares their packages and uses all cores. A lock per
module lets one run build while the others wait; a program appears in the cache in one rename, so that nobody can see
half of one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from localcluster.errors import LocalClusterError
from localcluster.gotoolchain import find_go, parse_version
from localcluster.program import Program, cache_path, cache_root, is_executable
from localcluster.report import Report

KUBERNETES = "k8s.io/kubernetes"
CONTAINERD = "github.com/containerd/containerd/v2"
_PROGRESS_SECONDS = 10.0


def build_missing(programs: Iterable[Program], report: Report) -> dict[str, Path]:
    """Build what is not in the cache yet; the paths by name. Raises LocalClusterError."""
    paths: dict[str, Path] = {}
    for batch in _batches(programs):
        paths |= _build_locked(batch, report)
    return paths


def _batches(programs: Iterable[Program]) -> list[list[Program]]:
    """Programs that one `go build` can make: same module, same stamps, same cgo and tags."""
    batches: dict[tuple[str, str, bool, str], list[Program]] = {}
    for program in programs:
        batches.setdefault((program.folder, program.requirement, program.cgo, program.tags), []).append(program)
    return list(batches.values())


def _build_locked(batch: list[Program], report: Report) -> dict[str, Path]:
    with _build_lock(batch[0], report):
        # Another run may have built them while this one waited.
        missing = [program for program in batch if not is_executable(cache_path(program))]
        if missing:
            _build(missing, report)
    return {program.name: cache_path(program) for program in batch}


@contextlib.contextmanager
def _build_lock(program: Program, report: Report) -> Iterator[None]:
    folder = cache_path(program).parent
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / f".{program.folder}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"another run builds {program.requirement} {program.version}: waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _build(batch: list[Program], report: Report) -> None:
    first = batch[0]
    _check_platform(first)
    go = go_of(first.module_dir, report)
    names = ", ".join(program.name for program in batch)
    report(f"building {names} {first.version} from source (once; kept in {cache_path(first).parent})")
    started = time.monotonic()
    # Beside its destination, so that the rename stays in one file system. A build that was killed left its own there.
    prefix = f".build-{first.folder}-"
    for left in cache_path(first).parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=cache_path(first).parent) as folder:
        _run_go(_build_command(go, batch, Path(folder)), first, names, report)
        for program in batch:
            (Path(folder) / _output_name(program)).replace(cache_path(program))
    report(f"built {names} in {time.monotonic() - started:.0f} s")


def go_of(module: Path, report: Report) -> Path:
    """A `go` that is new enough for the module in that folder."""
    return find_go(_go_version(module / "go.mod"), cache_root(), report)


def _check_platform(program: Program) -> None:
    if program.cgo and shutil.which("cc") is None:
        raise LocalClusterError(
            f"{program.name} needs a C compiler: apt install build-essential pkg-config libseccomp-dev"
        )


def _go_version(go_mod: Path) -> str:
    match = re.search(r"^go (\S+)", go_mod.read_text(), re.MULTILINE)
    if match is None:
        raise LocalClusterError(f"{go_mod} names no Go version")
    return match.group(1)


def _build_command(go: Path, batch: list[Program], folder: Path) -> list[str]:
    first = batch[0]
    # -v prints each package when it is compiled, which is all the progress that go gives.
    command = [str(go), "build", "-v", "-trimpath", "-mod=readonly", "-ldflags", _link_flags(first)]
    command += ["-tags", first.tags] if first.tags else []
    return [*command, "-o", f"{folder}/", *(program.package for program in batch)]


def _link_flags(program: Program) -> str:
    version = program.version
    flags = ["-s", "-w"]
    if program.requirement == KUBERNETES:
        major, minor, _ = parse_version(version)
        stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        # Two packages, since clients (and nodes) read another one than servers do.
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += [f"-X {package}.{key}={value}" for key, value in stamps.items()]
    elif program.requirement == CONTAINERD:
        flags.append(f"-X {CONTAINERD}/version.Version={version}")
    return " ".join(flags)


def _output_name(program: Program) -> str:
    """What go calls the program: the last element of its path that is no version."""
    if program.package == ".":  # the module itself, which is called as its folder is
        return program.folder
    elements = [element for element in program.package.split("/") if not re.fullmatch(r"v\d+", element)]
    return elements[-1]


def _run_go(command: list[str], program: Program, names: str, report: Report) -> None:
    environment = {
        **os.environ,
        "CGO_ENABLED": "1" if program.cgo else "0",
        "GOFLAGS": "",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    with subprocess.Popen(
        command,
        cwd=program.module_dir,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as build:
        progress = _Progress(names, report)
        try:
            lines = progress.follow(build)
        except BaseException:
            os.killpg(build.pid, signal.SIGKILL)  # Ctrl-C: no compiler may go on
            raise
    if build.returncode:
        raise LocalClusterError(f"building {names} failed: {_reason(lines)}")


class _Progress:
    """Counts what go prints and says now and then how far it is."""

    def __init__(self, names: str, report: Report) -> None:
        self._names = names
        self._report = report
        self._lines: list[str] = []
        self._started = time.monotonic()
        self._ended = threading.Event()

    def follow(self, build: subprocess.Popen[str]) -> list[str]:
        """Read to the end; the lines that go printed."""
        teller = threading.Thread(target=self._tell, name="build-progress", daemon=True)
        teller.start()
        try:
            for line in build.stdout or ():
                self._lines.append(line.rstrip())
        finally:
            self._ended.set()
            teller.join()
        return self._lines

    def _tell(self) -> None:
        while not self._ended.wait(_PROGRESS_SECONDS):
            downloads = sum(line.startswith("go: downloading") for line in self._lines)
            seconds = time.monotonic() - self._started
            self._report(
                f"  {self._names}: {seconds:.0f} s, {downloads} modules fetched, "
                f"{len(self._lines) - downloads} packages compiled"
            )


def _reason(lines: list[str]) -> str:
    """The line of a failed build that says most."""
    telling = [line for line in lines if ": " in line and not line.startswith("go: downloading")]
    return telling[-1] if telling else (lines[-1] if lines else "go said nothing")
