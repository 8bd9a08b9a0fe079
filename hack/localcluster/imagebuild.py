"""The content of each image: functions that fill an empty folder with the files of a layer, and return its inputs.

Python packages go where Debian's Python looks first, `/usr/local/lib/python3.X/dist-packages`, and are compiled here:
a container with a read-only file system would compile them at every start.
"""

from __future__ import annotations

import configparser
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from localcluster import binaries, debian
from localcluster.binaries import HACK
from localcluster.imagepackages import COMPILE, DEBIAN_WASTE, REPOSITORY, PythonPackages, compile_debian, digest, remove
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
# What a wheel is built from, beside src/.
PROJECT_FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")
_SCRIPT = """\
#!/usr/bin/python3
import sys

from {module} import {function}

sys.exit({function}())
"""


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


def runtime_inputs() -> bytes:
    return digest([HACK / "requirements/runtime.txt"])


def runtime(root: Path, parent: Path | None, report: Report) -> None:
    """Adds the dependencies of this project. They are a separate layer, which is large and seldom changes."""
    with PythonPackages(root, parent) as packages:
        packages.install(["--require-hashes", "--requirement", str(HACK / "requirements/runtime.txt")])
        remove(packages.folder, ["bin"])
        packages.compile()


def storage_inputs() -> bytes:
    return digest([HACK / "requirements/initializer.txt"])


def storage(root: Path, parent: Path | None, report: Report) -> None:
    """Adds the further dependencies of the initializers: the lock file omits those of `runtime`."""
    with PythonPackages(root, parent) as packages:
        packages.install(["--no-deps", "--require-hashes", "--requirement", str(HACK / "requirements/initializer.txt")])
        remove(packages.folder, ["bin"])
        packages.compile()


def controller_inputs() -> bytes:
    sources = [path for path in (REPOSITORY / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    metadata = [path for path in sources if not any(part.endswith(".egg-info") for part in path.parts)]
    return digest([*metadata, *(REPOSITORY / name for name in PROJECT_FILES)]) + repr(_scripts()).encode()


def controller(root: Path, parent: Path | None, report: Report) -> None:
    """Adds the wheel of this project, with its programs in /usr/local/bin."""
    with PythonPackages(root, parent) as packages:
        packages.install(["--no-deps", str(_wheel(packages.scratch))])
        remove(packages.folder, ["bin"])
        packages.compile()
    programs = root / "usr/local/bin"
    programs.mkdir(parents=True)
    for name, text in _scripts().items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)


def _scripts() -> dict[str, str]:
    """Returns the scripts by name of the program; those that pip writes name this machine's Python."""
    settings = configparser.ConfigParser()
    settings.read(REPOSITORY / "setup.cfg")
    found = {}
    for line in settings["options.entry_points"]["console_scripts"].strip().splitlines():
        name, _, target = (word.strip() for word in line.partition("="))
        module, _, function = target.partition(":")
        found[name] = _SCRIPT.format(module=module, function=function)
    return found


def kube_scheduler_inputs() -> bytes:
    return digest([HACK / "controlplane/go.mod", HACK / "controlplane/go.sum"])


def kube_scheduler(root: Path, parent: Path | None, report: Report) -> None:
    """Adds the kube-scheduler of the control plane as /usr/local/bin/kube-scheduler, as in a vendor's image."""
    program = root / "usr/local/bin/kube-scheduler"
    program.parent.mkdir(parents=True)
    shutil.copy2(binaries.ensure("kube-scheduler", report), program)


def _wheel(scratch: Path) -> Path:
    """Builds the wheel of this project from a copy of the sources, so that no build files appear among them."""
    source = scratch / "source"
    source.mkdir()
    for name in PROJECT_FILES:
        shutil.copy(REPOSITORY / name, source)
    shutil.copytree(REPOSITORY / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", scratch, source)
    (wheel,) = scratch.glob("*.whl")
    return wheel
