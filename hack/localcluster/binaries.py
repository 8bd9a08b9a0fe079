"""Programs by name, wherever they are; else built from the Go modules that this repository pins.

    kube_apiserver = binaries.ensure("kube-apiserver")       # a Path
    paths = binaries.ensure_all(["etcd", "kube-apiserver"])  # missing ones of one module are built in one go

Looked for in this order:

1. `$KUBEBUILDER_ASSETS/<name>`: taken as it is, since somebody set that variable on purpose.
2. PATH, only for the programs of Kubernetes and etcd, and only when `<name> --version` is of the pinned minor version
   (1.36): a kubectl or kubelet of another age would fail in ways that are hard to read. A node's programs
   (containerd, runc, CNI, CoreDNS) are never taken from PATH: distributions ship other versions, built otherwise.
3. The cache: `${XDG_CACHE_HOME:-~/.cache}/tfjob-controller/bin/<version>/<name>`.
4. Built with Go (`gotoolchain`) into that cache: `-trimpath`, stripped, stamped with the version. A lock lets one run
   build and the others wait; a program appears in the cache in one rename.

Versions stand in the go.mod files under hack/ and nowhere else.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import LocalClusterError
from localcluster.gotoolchain import find_go, parse_version
from localcluster.report import Report, to_stderr

HACK = Path(__file__).resolve().parent.parent
_KUBERNETES = "k8s.io/kubernetes"
_CONTAINERD = "github.com/containerd/containerd/v2"
_PLUGINS = "github.com/containernetworking/plugins"
_PROGRESS_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Program:
    """A program, the package that builds it, and the module requirement in go.mod that gives its version."""

    name: str
    folder: str  # under hack/, with the go.mod
    package: str
    requirement: str
    cgo: bool = False
    tags: str = ""
    # How to ask a program on PATH for its version; none: never taken from PATH.
    version_arguments: tuple[str, ...] = ()

    @property
    def module_dir(self) -> Path:
        return HACK / self.folder

    @property
    def version(self) -> str:
        return required_version(self.module_dir / "go.mod", self.requirement)


def _kubernetes(name: str, *version_arguments: str) -> Program:
    return Program(
        name,
        "controlplane",
        f"{_KUBERNETES}/cmd/{name}",
        _KUBERNETES,
        version_arguments=version_arguments or ("--version",),
    )


def _containerd(name: str) -> Program:
    return Program(name, "nodes", f"{_CONTAINERD}/cmd/{name}", _CONTAINERD)


def _plugin(name: str, kind: str) -> Program:
    return Program(name, "nodes", f"{_PLUGINS}/plugins/{kind}/{name}", _PLUGINS)


_ETCD = "go.etcd.io/etcd/server/v3"
_RUNC = "github.com/opencontainers/runc"

PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", "controlplane", _ETCD, _ETCD, version_arguments=("--version",)),
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kube-scheduler"),
        _kubernetes("kubelet"),
        _kubernetes("kube-proxy"),
        _kubernetes("kubectl", "version", "--client"),
        _containerd("containerd"),
        _containerd("ctr"),
        _containerd("containerd-shim-runc-v2"),
        Program("runc", "nodes", _RUNC, _RUNC, cgo=True, tags="seccomp"),
        _plugin("bridge", "main"),
        _plugin("loopback", "main"),
        _plugin("host-local", "ipam"),
        _plugin("portmap", "meta"),
        Program("coredns", "coredns", ".", "github.com/coredns/coredns"),
    )
}
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def ensure(name: str, report: Report = to_stderr) -> Path:
    """The path of a program, built first where it must be. Raises LocalClusterError."""
    return ensure_all([name], report)[name]


def ensure_all(names: Iterable[str], report: Report = to_stderr) -> dict[str, Path]:
    """The paths of several programs. Raises LocalClusterError for unknown names and for builds that fail."""
    programs = [_program(name) for name in names]
    found = {program.name: path for program in programs if (path := find(program)) is not None}
    missing = [program for program in programs if program.name not in found]
    for batch in _batches(missing):
        found |= _build_locked(batch, report)
    return found


def find(program: Program) -> Path | None:
    """The program as it is there already, None if it has to be built."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and _is_executable(Path(assets) / program.name):
        return Path(assets) / program.name
    on_path = shutil.which(program.name) if program.version_arguments else None
    if on_path and _fits(on_path, program.version_arguments, program.version):
        return Path(on_path)
    cached = cache_path(program)
    return cached if _is_executable(cached) else None


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tfjob-controller"


def cache_path(program: Program) -> Path:
    return cache_root() / "bin" / program.version / program.name


@functools.cache
def required_version(go_mod: Path, module: str) -> str:
    """The version that a go.mod requires of a module."""
    match = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", go_mod.read_text(), re.MULTILINE)
    if match is None:
        raise LocalClusterError(f"{go_mod} requires no {module}")
    return match.group(1)


def kubernetes_version() -> str:
    """v1.36.3, as pinned."""
    return _program("kube-apiserver").version


def _program(name: str) -> Program:
    if name not in PROGRAMS:
        raise LocalClusterError(f"no such program: {name} (there are: {', '.join(PROGRAMS)})")
    return PROGRAMS[name]


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


@functools.cache
def _fits(path: str, version_arguments: tuple[str, ...], version: str) -> bool:
    """Whether a program on PATH is of the same minor version as the pinned one."""
    try:
        done = subprocess.run([path, *version_arguments], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return parse_version(done.stdout)[:2] == parse_version(version)[:2]


def _batches(programs: Iterable[Program]) -> list[list[Program]]:
    """Programs that one `go build` can make: same module, same stamps, same cgo and tags."""
    batches: dict[tuple[str, str, bool, str], list[Program]] = {}
    for program in programs:
        batches.setdefault((program.folder, program.requirement, program.cgo, program.tags), []).append(program)
    return list(batches.values())


def _build_locked(batch: list[Program], report: Report) -> dict[str, Path]:
    with _build_lock(batch[0], report):
        # Another run may have built them while this one waited.
        missing = [program for program in batch if not _is_executable(cache_path(program))]
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
    go = find_go(_go_version(first.module_dir / "go.mod"), cache_root(), report)
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
    if program.requirement == _KUBERNETES:
        major, minor, _ = parse_version(version)
        stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        # Two packages, since clients (and nodes) read another one than servers do.
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += [f"-X {package}.{key}={value}" for key, value in stamps.items()]
    elif program.requirement == _CONTAINERD:
        flags.append(f"-X {_CONTAINERD}/version.Version={version}")
    return " ".join(flags)


def _output_name(program: Program) -> str:
    """What go calls the program: the last element of its path that is no version."""
    if program.package == ".":
        return "coredns"
    elements = [element for element in program.package.split("/") if not re.fullmatch(r"v\d+", element)]
    return elements[-1]


def _run_go(command: list[str], program: Program, names: str, report: Report) -> None:
    environment = {
        **os.environ,
        "CGO_ENABLED": "1" if program.cgo else "0",
        "GOFLAGS": "",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOOS": "linux" if sys.platform == "linux" else platform.system().lower(),
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
