"""Builds programs from the Go modules that this repository pins, once per user and version.

All missing programs of a module are built by one `go build`, which shares their packages and uses all cores. While the
first module is compiled the others are fetched. A lock per module lets one run build while the others wait; a program
appears in the cache in one rename, so that it is always complete.
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
from localcluster.kubernetesversions import KUBERNETES
from localcluster.program import Program, cache_path, cache_root, is_executable
from localcluster.progress import Board, Task
from localcluster.report import Report

CONTAINERD = "github.com/containerd/containerd/v2"
COSCHEDULING = "sigs.k8s.io/scheduler-plugins"
KUEUE = "sigs.k8s.io/kueue"
VOLCANO = "volcano.sh/volcano"
# Linking a program takes about as long as compiling so many packages.
_LINK_PACKAGES = 30
# The programs are stripped, so debug information would be unused.
_COMPILER_FLAGS = ("-trimpath", "-mod=readonly", "-gcflags=all=-dwarf=false")


def build_missing(programs: Iterable[Program], report: Report, board: Board | None = None) -> dict[str, Path]:
    """Builds the programs that the cache lacks; returns the paths by name. Raises LocalClusterError."""
    batches = _batches(programs)
    if any(_missing(batch) for batch in batches):
        with contextlib.ExitStack() as stack:
            shown = board or stack.enter_context(Board(report))
            survey = stack.enter_context(_Survey(batches, shown.task("programs"), report))
            for batch in batches:
                _build_locked(batch, report, survey)
    return {program.name: cache_path(program) for batch in batches for program in batch}


def _batches(programs: Iterable[Program]) -> list[list[Program]]:
    """Groups the programs that one `go build` can build: same module, same cgo setting and tags."""
    batches: dict[tuple[str, bool, str], list[Program]] = {}
    for program in programs:
        batches.setdefault((program.folder, program.cgo, program.tags), []).append(program)
    return list(batches.values())


def _missing(batch: list[Program]) -> list[Program]:
    return [program for program in batch if not is_executable(cache_path(program))]


def _build_locked(batch: list[Program], report: Report, survey: _Survey) -> None:
    with _build_lock(batch[0], report):
        # Another run may have built them while this one waited.
        if missing := _missing(batch):
            _build(missing, report, survey)


@contextlib.contextmanager
def _build_lock(program: Program, report: Report) -> Iterator[None]:
    folder = cache_root() / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / f".{_file_name(program)}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another run that builds the programs of hack/{program.folder}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _file_name(program: Program) -> str:
    """Returns the name of the module's folder as a part of a file's name."""
    return program.folder.replace("/", "-")


def _build(batch: list[Program], report: Report, survey: _Survey) -> None:
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
        _run_go(_build_command(go, batch, Path(folder)), first, names, survey)
        for program in batch:
            cache_path(program).parent.mkdir(exist_ok=True)
            (Path(folder) / _output_name(program)).replace(cache_path(program))
    survey.linked(len(batch))
    report(f"built {names} in {time.monotonic() - started:.0f} s, kept in {place}")


def go_of(module: Path, report: Report) -> Path:
    """Returns a `go` that is new enough for the module in that folder."""
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
    # -v prints each package when its compilation starts.
    return [str(go), "build", "-v", *_flags(batch), "-o", f"{folder}/", *(program.package for program in batch)]


def _flags(batch: list[Program]) -> list[str]:
    """Returns the flags that determine whether a package that was compiled earlier can be reused."""
    flags = [*_COMPILER_FLAGS, "-ldflags", _link_flags(None)]
    for requirement in sorted({program.requirement for program in batch}):
        stamped = next(program for program in batch if program.requirement == requirement)
        if (words := _link_flags(stamped)) != _link_flags(None):
            flags += ["-ldflags", f"{requirement}/...={words}"]
    return flags + (["-tags", batch[0].tags] if batch[0].tags else [])


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


def go_environment() -> dict[str, str]:
    """Returns the environment of a `go` command that depends on nothing but the module in its folder."""
    return {**os.environ, "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def _environment(program: Program) -> dict[str, str]:
    return {**go_environment(), "CGO_ENABLED": "1" if program.cgo else "0"}


def _run_go(command: list[str], program: Program, names: str, survey: _Survey) -> None:
    with _go(command, program, stderr=subprocess.STDOUT) as build:
        try:
            lines = []
            for line in build.stdout or ():
                lines.append(line.rstrip())
                survey.compiled(line)
        except BaseException:
            os.killpg(build.pid, signal.SIGKILL)  # Ctrl-C also ends the compilers
            raise
    if build.returncode:
        raise LocalClusterError(f"building {names} failed: {_reason(lines)}")


def _go(command: list[str], program: Program, stderr: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=program.module_dir,
        env=_environment(program),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


class _Survey:
    """Determines which packages must be compiled, and counts those that were.

    Listing a module's packages fetches the modules that it needs. The first batch is listed before it is built, the
    others meanwhile, so that the network and the compiler work at the same time.
    """

    def __init__(self, batches: list[list[Program]], task: Task, report: Report) -> None:
        self._batches = [missing for batch in batches if (missing := _missing(batch))]
        self._task = task
        self._report = report
        self._stale: set[str] = set()
        self._compiled = self._links_done = 0
        self._links = sum(map(len, self._batches))
        self._current: subprocess.Popen[str] | None = None
        self._ended = False
        self._others = threading.Thread(target=self._list_others, name="go-list", daemon=True)

    def __enter__(self) -> _Survey:
        self._task.text = "determining which packages to compile"
        self._list(self._batches[0])
        self._others.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        if self._others.is_alive() and self._current is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._current.pid, signal.SIGKILL)
        self._others.join()

    def compiled(self, line: str) -> None:
        """Records a line of `go build -v`."""
        if ": " not in line:
            self._compiled += 1
            self._show()

    def linked(self, count: int) -> None:
        """Counts programs that are ready."""
        self._links_done += count
        self._show()

    def _show(self) -> None:
        total = max(len(self._stale), self._compiled)
        self._task.update(
            self._compiled + _LINK_PACKAGES * self._links_done,
            total + _LINK_PACKAGES * self._links,
            f"{self._compiled:,} of {total:,} packages compiled",
        )

    def _list_others(self) -> None:
        with contextlib.suppress(LocalClusterError):  # without Go, the build reports the error
            for batch in self._batches[1:]:
                if not self._ended:
                    self._list(batch)

    def _list(self, batch: list[Program]) -> None:
        """Adds the packages of a batch that are not in Go's own cache. The build reports errors."""
        first = batch[0]
        shape = "{{if .Stale}}{{.ImportPath}}{{with .Module}}@{{.Version}}{{end}} {{end}}"
        packages = [program.package for program in batch]
        command = [str(go_of(first.module_dir, self._report)), "list", *_flags(batch), "-deps", "-f", shape, *packages]
        with _go(command, first, stderr=subprocess.DEVNULL) as self._current:
            try:
                output = self._current.communicate()[0]
            except BaseException:
                os.killpg(self._current.pid, signal.SIGKILL)
                raise
        self._stale.update(output.split())
        self._show()


def _reason(lines: list[str]) -> str:
    """Returns the most informative line of a failed build."""
    telling = [line for line in lines if ": " in line and not line.startswith("go: downloading")]
    return telling[-1] if telling else (lines[-1] if lines else "go printed nothing")
