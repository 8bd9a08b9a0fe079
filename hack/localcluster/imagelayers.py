"""The kinds of layers that images consist of: a whole Debian, packages of Debian, packages of Python, one program.

Each is a value: `inputs` returns what its files depend on, and `build` writes them to an empty folder.

All Python files are compiled here to unchecked bytecode: a layer's files carry one fixed time, which
makes other bytecode look outdated, and a container with a read-only file system would compile it at every start.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from localcluster import archive, binaries, debian
from localcluster.binaries import HACK
from localcluster.errors import LocalClusterError
from localcluster.report import Report
from localcluster.shell import run

REPOSITORY = HACK.parent
LOCKS = HACK / "requirements"
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
# The number of last lines of pip's output that an error message contains.
_LAST_LINES = 3


@dataclass(frozen=True, slots=True)
class KubernetesProgram:
    """A program of the control plane's version of Kubernetes in /usr/local/bin, as in a vendor's image."""

    name: str

    def inputs(self) -> bytes:
        return digest([HACK / "controlplane/go.mod", HACK / "controlplane/go.sum"])

    def build(self, root: Path, parent: Path | None, report: Report) -> None:
        program = root / "usr/local/bin" / self.name
        program.parent.mkdir(parents=True)
        shutil.copy2(binaries.ensure(self.name, report), program)


@dataclass(frozen=True, slots=True)
class System:
    """A Debian of this machine's release, or of `suite`, with these packages and without `waste`."""

    packages: tuple[str, ...]
    waste: tuple[str, ...] = DEBIAN_WASTE
    suite: str = ""

    def inputs(self) -> bytes:
        release = self.suite or (debian.codename(), "main")
        return repr((release, self.packages, self.waste, COMPILE)).encode()

    def build(self, root: Path, parent: Path | None, report: Report) -> None:
        _check_machine(report)
        debian.bootstrap(root, self.packages, report, self.suite)
        remove(root, self.waste)
        # Some modules are for other versions of Python and fail; they are not imported.
        libraries = [f"/{path.relative_to(root)}" for path in root.glob("usr/lib/python3*")]
        _python(root, *COMPILE, *libraries, check=False)
        # Kubernetes mounts its own file; this one names the servers of this machine.
        (root / "etc/resolv.conf").write_text("")
        (root / "etc/hostname").unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class DebianPackages:
    """The files that packages and their dependencies add to the parent image, without `waste`.

    `size` describes the download. `amend` is a shell command that runs in the image after the installation. It needs
    root, and a file system that overlayfs can write to.
    """

    packages: tuple[str, ...]
    waste: tuple[str, ...]
    size: str
    amend: str = ""

    def inputs(self) -> bytes:
        return repr((self.packages, self.waste, *([self.amend] if self.amend else []), DEBIAN_WASTE)).encode()

    def build(self, root: Path, parent: Path | None, report: Report) -> None:
        report(f"fetching {self.packages[0]} and its dependencies from this machine's apt mirror (about {self.size})")
        unwanted = [*DEBIAN_WASTE, *self.waste]
        with tempfile.TemporaryDirectory(prefix=".build-", dir=root.parent) as scratch:
            system, work, merged, fetched = (Path(scratch) / name for name in ("system", "work", "merged", "fetched"))
            for folder in (system, work, merged):
                folder.mkdir()
            unpack(parent, system)
            debian.fetch(self.packages, system / "var/lib/dpkg/status", fetched)
            _still(system)
            options = ["--force-unsafe-io", *(f"--path-exclude=/{pattern}" for pattern in unwanted)]
            arguments: list[str | Path] = [
                system,
                root,
                work,
                merged,
                fetched / "archives",
                self.amend or "true",
                *options,
            ]
            run(*_APART, "sh", "-c", _INSTALL, "sh", *arguments)
        # The overlay's marks of deleted files mean nothing in a tar: the parent's files remain.
        for mark in [path for path in root.rglob("*") if path.is_char_device()]:
            mark.unlink()
        remove(root, unwanted)


@dataclass(frozen=True, slots=True)
class PythonPackages:
    """The packages of a lock for the parent image's own Python, where Debian's Python looks first, without `waste`.

    `size` describes the download. pip runs with the index, proxy and certificates of this machine's own pip.
    """

    lock: str
    waste: tuple[str, ...]
    size: str
    options: tuple[str, ...] = ()

    def inputs(self) -> bytes:
        return digest([LOCKS / f"{self.lock}.txt"]) + repr(self.waste).encode()

    def build(self, root: Path, parent: Path | None, report: Report) -> None:
        report(f"fetching the wheels of hack/requirements/{self.lock}.txt (about {self.size})")
        with tempfile.TemporaryDirectory(prefix=".build-", dir=root.parent) as scratch:
            system = Path(scratch) / "system"
            system.mkdir()
            unpack(parent, system)
            version = _python(system, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
            inside = f"usr/local/lib/python{version}/dist-packages"
            self._install(root / inside, version)
            remove(root / inside, self.waste)
            # A few packages contain templates or tests for other versions of Python that do not compile.
            (root / inside).rename(system / "layer")
            _python(system, *COMPILE, "-s", "/layer", "-p", f"/{inside}", "/layer", check=False)
            (system / "layer").rename(root / inside)

    def _install(self, target: Path, version: str) -> None:
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-warn-conflicts"]
        argv += ["--target", str(target), "--python-version", version, "--only-binary=:all:", *self.options]
        argv += ["--require-hashes", "--requirement", str(LOCKS / f"{self.lock}.txt")]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            message = "\n".join(done.stderr.strip().splitlines()[-_LAST_LINES:])
            raise LocalClusterError(f"pip could not install the packages of {self.lock}.txt:\n{message}")


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


def _check_machine(report: Report) -> None:
    debian.require_root("local images")
    debian.ensure_packages(debian.IMAGE_PACKAGES, report)


def _still(system: Path) -> None:
    """Prevents the scripts of packages from starting services, and from compiling, which is done once for all."""
    policy = system / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    compiler = system / "usr/bin/py3compile"
    compiler.unlink()
    compiler.symlink_to("true")


def _python(system: Path, *arguments: str, check: bool = True) -> str:
    """Returns the output of the Python of a system."""
    argv = ["chroot", str(system), "/usr/bin/python3", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=check).stdout
