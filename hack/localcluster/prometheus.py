"""Prometheus and promtool from Debian's package, unpacked into the cache and not installed, so that no daemon starts.

Debian's build supports only static and file-based service discovery. Programs on PATH take precedence.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from localcluster import debian
from localcluster.errors import LocalClusterError
from localcluster.locks import locked
from localcluster.program import cache_root, is_executable
from localcluster.report import Report, to_stderr
from localcluster.shell import CommandError, run

_PACKAGE = "prometheus"


@dataclass(frozen=True, slots=True)
class Tools:
    prometheus: Path
    promtool: Path


def ensure(report: Report = to_stderr) -> Tools:
    """Returns the paths of both programs, which are downloaded first if necessary. Raises LocalClusterError."""
    on_path = Tools(*(Path(shutil.which(name) or "") for name in ("prometheus", "promtool")))
    if _is_there(on_path):
        return on_path
    folder = cache_root() / "prometheus"
    cached = Tools(folder / "usr/bin/prometheus", folder / "usr/bin/promtool")
    if not _is_there(cached):
        with locked(folder.with_suffix(".lock")):
            # Another process may have downloaded them while this one waited.
            if not _is_there(cached):
                _fetch(folder, report)
    return cached


def _is_there(tools: Tools) -> bool:
    return is_executable(tools.prometheus) and is_executable(tools.promtool)


def _fetch(folder: Path, report: Report) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise LocalClusterError("Prometheus comes from Debian's package: put prometheus and promtool on PATH")
    report("fetching Debian's package prometheus (20 MB)")
    with tempfile.TemporaryDirectory(prefix=".prometheus-", dir=folder.parent) as name:
        scratch = Path(name)
        debian.download(_PACKAGE, scratch)
        (package,) = scratch.glob(f"{_PACKAGE}_*.deb")
        run("dpkg-deb", "--extract", package, scratch / "files")
        try:
            run(scratch / "files/usr/bin/promtool", "--version")
        except CommandError as error:
            raise LocalClusterError(f"Debian's promtool does not run here: {error}") from error
        shutil.rmtree(folder, ignore_errors=True)
        (scratch / "files").rename(folder)
