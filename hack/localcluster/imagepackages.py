"""Packages as one layer of an image: Debian's, and Python's.

All Python files are compiled here to unchecked bytecode: a layer's files carry one fixed time, which
makes other bytecode look outdated, and a container with a read-only file system would compile it at every start.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from localcluster import archive, debian
from localcluster.binaries import HACK
from localcluster.errors import LocalClusterError
from localcluster.shell import run

REPOSITORY = HACK.parent
# Documentation, package lists and translations: half of a minimal Debian, and unused in a container.
DEBIAN_WASTE = (
    "var/cache/*",
    "var/lib/apt/lists/*",
    "var/log/*",
    "usr/share/doc/*",
    "usr/share/man/*",
    "usr/share/locale/*",
)
COMPILE = ("-m", "compileall", "-q", "-f", "-j", "2", "--invalidation-mode", "unchecked-hash")
# The tools run in their own namespaces, so that services that a package starts, and mounts, end with them.
_APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--net")
# Arguments: an overlay's lower, upper, work and merged folder, the packages' folder, a command that amends what they
# brought, and dpkg's options.
_INSTALL = """\
set -e
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$4"
mount --bind "$5" "$4/mnt"
merged=$4 amend=$6
shift 6
chroot "$merged" env DEBIAN_FRONTEND=noninteractive sh -c 'exec dpkg "$@" --install /mnt/*.deb' sh "$@"
chroot "$merged" sh -c "$amend"
chroot "$merged" python3 COMPILE /usr/lib/python3 || true
""".replace("COMPILE", " ".join(COMPILE))
# The number of last lines of the tools' output that an error message contains.
_LAST_LINES = 3


def install_debian(
    root: Path, parent: Path | None, packages: Sequence[str], waste: Sequence[str], amend: str = "true"
) -> None:
    """Installs in `root` the files that these packages and their dependencies add to the parent image, without `waste`.

    `amend` is a shell command that runs in the image after the installation and before Python files are compiled.
    Needs root, and a file system below `root` that overlayfs can write to (nodes need that too).
    """
    unwanted = [*DEBIAN_WASTE, *waste]
    with tempfile.TemporaryDirectory(prefix=".build-", dir=root.parent) as name:
        system, work, merged, fetched = (Path(name) / part for part in ("system", "work", "merged", "fetched"))
        for folder in (system, work, merged):
            folder.mkdir()
        unpack(parent, system)
        debian.fetch(packages, system / "var/lib/dpkg/status", fetched)
        _still(system)
        options = ["--force-unsafe-io", *(f"--path-exclude=/{pattern}" for pattern in unwanted)]
        run(*_APART, "sh", "-c", _INSTALL, "sh", system, root, work, merged, fetched / "archives", amend, *options)
    _forget_removals(root)
    remove(root, unwanted)


def compile_debian(system: Path) -> None:
    """Compiles the modules of a whole system. Some are for other versions of Python and fail; they are not imported."""
    argv = ["chroot", str(system), "python3", *COMPILE]
    libraries = [f"/{path.relative_to(system)}" for path in system.glob("usr/lib/python3*")]
    subprocess.run([*argv, *libraries], capture_output=True, check=False)


def unpack(image: Path | None, folder: Path) -> None:
    """Extracts all files of an image."""
    if image is None:
        raise LocalClusterError("an image of packages needs a complete base image")
    for layer in archive.layers(image):
        archive.unpack(layer, folder)


def remove(root: Path, patterns: Iterable[str]) -> None:
    for path in [path for pattern in patterns for path in root.glob(pattern)]:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def digest(paths: Iterable[Path]) -> bytes:
    """Returns a digest of the names and the content of files of this repository."""
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(f"{path.relative_to(REPOSITORY)}\0".encode())
        found.update(path.read_bytes())
    return found.digest()


def _still(system: Path) -> None:
    """Prevents the scripts of packages from starting services, and from compiling, which is done once for all."""
    policy = system / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    compiler = system / "usr/bin/py3compile"
    compiler.unlink()
    compiler.symlink_to("true")


def _forget_removals(upper: Path) -> None:
    """Removes the overlay's marks of deleted files, which mean nothing in a tar: the parent's files remain."""
    for path in upper.rglob("*"):
        if path.is_char_device():
            path.unlink()


class PythonPackages:
    """Python packages for the parent image's own Python, which may differ from the version that runs this program.

    The context manager unpacks the parent to a temporary folder, so that its Python can compile the packages.
    """

    def __init__(self, root: Path, parent: Path | None) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix=".build-", dir=root.parent)
        self.scratch = Path(self._scratch.name)
        self._system = self.scratch / "system"
        self._root, self._parent = root, parent
        self._version = ""

    def __enter__(self) -> PythonPackages:
        self._system.mkdir()
        unpack(self._parent, self._system)
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
        """Runs pip with the index, proxy and certificates of this machine's own pip."""
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-warn-conflicts"]
        where = ["--target", str(self.folder), "--python-version", self._version, "--only-binary=:all:"]
        done = subprocess.run([*argv, *where, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            words = "\n".join(done.stderr.strip().splitlines()[-_LAST_LINES:])
            raise LocalClusterError(f"pip could not install the packages of {self._root.parent.name}:\n{words}")

    def compile(self) -> None:
        """Compiles all modules to unchecked bytecode, since sources cannot change in an image."""
        inside = self._system / "layer"
        self.folder.rename(inside)
        argv = ["-m", "compileall", "-q", "-j", "2", "--invalidation-mode", "unchecked-hash"]
        # A few packages contain templates or tests for other versions of Python that do not compile.
        self._python(*argv, "-s", "/layer", "-p", f"/{self._inside}", "/layer", check=False)
        inside.rename(self.folder)

    def _python(self, *arguments: str, check: bool = True) -> str:
        argv = ["chroot", str(self._system), "/usr/bin/python3", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=check).stdout
