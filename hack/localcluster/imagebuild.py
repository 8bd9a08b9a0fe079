"""The content of each image: functions that fill an empty folder with the files of a layer, and return its inputs.

Python packages go where Debian's Python looks first, `/usr/local/lib/python3.X/dist-packages`, and are compiled here:
a container with a read-only file system would compile them at every start.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from localcluster import binaries, debian
from localcluster.binaries import HACK
from localcluster.imagepackages import COMPILE, DEBIAN_WASTE, compile_debian, digest, remove
from localcluster.report import Report
from localcluster.shell import run

_PAUSE_SOURCE = """\
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static void end(int number) { (void)number; _exit(0); }
int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    for (;;) pause();
}
"""
_BASE_PACKAGES = ("python3", "ca-certificates")


def pause_inputs() -> bytes:
    return _PAUSE_SOURCE.encode()


def pause(root: Path, parent: Path | None, report: Report) -> None:
    """Adds the program that only holds a pod's namespaces."""
    _check_machine(report)
    run("cc", "-static", "-Os", "-s", "-x", "c", "-o", root / "pause", "-", stdin=_PAUSE_SOURCE)


def base_inputs() -> bytes:
    mirror_free = debian.mirror_of(debian.read_sources(), debian.codename())[1:]
    return repr((mirror_free, _BASE_PACKAGES, DEBIAN_WASTE, COMPILE)).encode()


def base(root: Path, parent: Path | None, report: Report) -> None:
    system(root, _BASE_PACKAGES, DEBIAN_WASTE, report)


def system(root: Path, packages: Sequence[str], waste: Sequence[str], report: Report, suite: str = "") -> None:
    """Fills `root` with a Debian of this machine's release, or of `suite`, and these packages, without `waste`."""
    _check_machine(report)
    debian.bootstrap(root, packages, report, suite)
    remove(root, waste)
    compile_debian(root)
    # Kubernetes mounts its own file; this one names the servers of this machine.
    (root / "etc/resolv.conf").write_text("")
    (root / "etc/hostname").unlink(missing_ok=True)


def _check_machine(report: Report) -> None:
    debian.require_root("local images")
    debian.ensure_packages(debian.IMAGE_PACKAGES, report)


def kube_scheduler_inputs() -> bytes:
    return digest([HACK / "controlplane/go.mod", HACK / "controlplane/go.sum"])


def kube_scheduler(root: Path, parent: Path | None, report: Report) -> None:
    """Adds the kube-scheduler of the control plane as /usr/local/bin/kube-scheduler, as in a vendor's image."""
    program = root / "usr/local/bin/kube-scheduler"
    program.parent.mkdir(parents=True)
    shutil.copy2(binaries.ensure("kube-scheduler", report), program)
