"""What is in each image: functions that fill an empty folder with one layer's files, and say what that depends on.

Python packages go where Debian's Python looks first, `/usr/local/lib/python3.X/dist-packages`, and are compiled here:
a container that may not write could not keep what it compiles, and would do it at every start.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from localcluster import archive, binaries, debian
from localcluster.binaries import HACK
from localcluster.errors import LocalClusterError
from localcluster.report import Report
from localcluster.shell import run

REPOSITORY = HACK.parent
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
# Documentation, package lists and translations: half of a minimal Debian, read by nobody in a container.
_BASE_WASTE = (
    "var/cache/*",
    "var/lib/apt/lists/*",
    "var/log/*",
    "usr/share/doc/*",
    "usr/share/man/*",
    "usr/share/locale/*",
)
# Headers to compile against, and a C compiler's library that only TensorFlow Lite's converter asks for.
_TENSORFLOW_WASTE = ("tensorflow/include", "clang/native", "bin")
# What a wheel is built from, beside src/.
_PROJECT_FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")
_CONTROLLER_SCRIPT = """\
#!/usr/bin/python3
import sys

from tfjob_controller.cli import main

sys.exit(main())
"""
# Whatever the tools say beyond this is not read by people.
_LAST_LINES = 3


def pause_inputs() -> bytes:
    return _PAUSE_SOURCE.encode()


def pause(root: Path, parent: Path | None, report: Report) -> None:
    """The program that holds a pod's namespaces and does nothing else."""
    _check_machine(report)
    run("cc", "-static", "-Os", "-s", "-x", "c", "-o", root / "pause", "-", stdin=_PAUSE_SOURCE)


def base_inputs() -> bytes:
    mirror_free = debian.mirror_of(debian.read_sources(), debian.codename())[1:]
    return repr((mirror_free, _BASE_PACKAGES, _BASE_WASTE)).encode()


def base(root: Path, parent: Path | None, report: Report) -> None:
    _check_machine(report)
    debian.bootstrap(root, _BASE_PACKAGES, report)
    _remove(root, _BASE_WASTE)
    # Kubernetes mounts its own; one that is there would name this machine's servers.
    (root / "etc/resolv.conf").write_text("")
    (root / "etc/hostname").unlink(missing_ok=True)


def _check_machine(report: Report) -> None:
    debian.require_root("local images")
    debian.ensure_packages(debian.IMAGE_PACKAGES, report)


def tensorflow_inputs() -> bytes:
    return _digest([HACK / "requirements/tensorflow.txt"]) + repr(_TENSORFLOW_WASTE).encode()


def tensorflow(root: Path, parent: Path | None, report: Report) -> None:
    with _Packages(root, parent) as packages:
        report("fetching TensorFlow's wheels (about 300 MB)")
        packages.install(["--require-hashes", "--requirement", str(HACK / "requirements/tensorflow.txt")])
        _remove(packages.folder, _TENSORFLOW_WASTE)
        report("compiling its modules, so that pods start at once")
        packages.compile()


def runtime_inputs() -> bytes:
    return _digest([HACK / "requirements/runtime.txt"])


def runtime(root: Path, parent: Path | None, report: Report) -> None:
    """What this project depends on, as a layer of its own: it seldom changes, and is nearly all of the image."""
    with _Packages(root, parent) as packages:
        packages.install(["--require-hashes", "--requirement", str(HACK / "requirements/runtime.txt")])
        _remove(packages.folder, ["bin"])
        packages.compile()


def controller_inputs() -> bytes:
    sources = [path for path in (REPOSITORY / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    metadata = [path for path in sources if not any(part.endswith(".egg-info") for part in path.parts)]
    return _digest([*metadata, *(REPOSITORY / name for name in _PROJECT_FILES)])


def controller(root: Path, parent: Path | None, report: Report) -> None:
    """The wheel of this project, as /usr/local/bin/tfjob-controller."""
    with _Packages(root, parent) as packages:
        packages.install(["--no-deps", str(_wheel(packages.scratch))])
        _remove(packages.folder, ["bin"])
        packages.compile()
    script = root / "usr/local/bin/tfjob-controller"
    script.parent.mkdir(parents=True)
    script.write_text(_CONTROLLER_SCRIPT)
    script.chmod(0o755)


def kube_scheduler_inputs() -> bytes:
    return _digest([HACK / "controlplane/go.mod", HACK / "controlplane/go.sum"])


def kube_scheduler(root: Path, parent: Path | None, report: Report) -> None:
    """The control plane's own, as /usr/local/bin/kube-scheduler: what a cluster's vendor has in an image."""
    program = root / "usr/local/bin/kube-scheduler"
    program.parent.mkdir(parents=True)
    shutil.copy2(binaries.ensure("kube-scheduler", report), program)


class _Packages:
    """Python packages for the parent image's own Python, which may be another version than the one that runs this.

    As a context manager: unpacks the parent in a scratch folder, so that its Python can compile what was installed.
    """

    def __init__(self, root: Path, parent: Path | None) -> None:
        if parent is None:
            raise LocalClusterError("an image with Python packages needs one with Python below it")
        self._scratch = tempfile.TemporaryDirectory(prefix=".build-", dir=root.parent)
        self.scratch = Path(self._scratch.name)
        self._system = self.scratch / "system"
        self._root, self._parent = root, parent
        self._version = ""

    def __enter__(self) -> _Packages:
        self._system.mkdir()
        for layer in archive.layers(self._parent):
            archive.unpack(layer, self._system)
        self._version = self._python("-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.cleanup()

    @property
    def folder(self) -> Path:
        return self._root / self._inside

    @property
    def _inside(self) -> str:
        return f"usr/local/lib/python{self._version}/dist-packages"

    def install(self, arguments: Sequence[str]) -> None:
        """pip, with whatever index, proxy and certificates this machine's own pip uses."""
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-warn-conflicts"]
        where = ["--target", str(self.folder), "--python-version", self._version, "--only-binary=:all:"]
        done = subprocess.run([*argv, *where, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            words = "\n".join(done.stderr.strip().splitlines()[-_LAST_LINES:])
            raise LocalClusterError(f"pip could not install what {self._root.parent.name} needs:\n{words}")

    def compile(self) -> None:
        """Compile all modules, never to be compared with their sources again: those cannot change in an image."""
        inside = self._system / "layer"
        self.folder.rename(inside)
        argv = ["-m", "compileall", "-q", "-j", "2", "--invalidation-mode", "unchecked-hash"]
        # A few packages hold templates or tests for other Pythons that do not compile; nobody imports them.
        self._python(*argv, "-s", "/layer", "-p", f"/{self._inside}", "/layer", check=False)
        inside.rename(self.folder)

    def _python(self, *arguments: str, check: bool = True) -> str:
        argv = ["chroot", str(self._system), "/usr/bin/python3", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=check).stdout


def _wheel(scratch: Path) -> Path:
    """The wheel of this project, built from a copy of the sources so that nothing appears among them."""
    source = scratch / "source"
    source.mkdir()
    for name in _PROJECT_FILES:
        shutil.copy(REPOSITORY / name, source)
    shutil.copytree(REPOSITORY / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", scratch, source)
    (wheel,) = scratch.glob("*.whl")
    return wheel


def _remove(root: Path, patterns: Iterable[str]) -> None:
    for path in [path for pattern in patterns for path in root.glob(pattern)]:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _digest(paths: Iterable[Path]) -> bytes:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.relative_to(REPOSITORY)}\0".encode())
        digest.update(path.read_bytes())
    return digest.digest()
