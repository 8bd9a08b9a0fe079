"""Images of this project: buildah builds the stages of the Dockerfile as it is, on a base that is made here.

The base takes the place of python:slim: a small Debian with its Python and pip. RUN steps have no network. What pip
may install is fetched before, with the index, proxy and certificates of this machine's own pip.

buildah keeps what it has built in a store beside the images, so a changed source file leads to two short steps.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import msgspec
import pip

from localcluster import archive, debian
from localcluster.errors import LocalClusterError
from localcluster.imagelayers import COMPILE, DEBIAN_WASTE, REPOSITORY, System, digest
from localcluster.report import Report
from localcluster.shell import run

# What the Dockerfile copies: files of the repository, and a folder.
CONTEXT = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "src")
LOCKS = tuple(f"hack/requirements/{name}.txt" for name in ("build", "runtime", "initializer"))
_BUILD_FILES = ("Dockerfile", ".dockerignore")
_BASE_PACKAGES = ("python3", "ca-certificates")
# The release of Debian whose Python is that of the Dockerfile's own base image.
_SUITE = "trixie"
_BUILDAH = {"buildah": "buildah"}
# Its mounts and processes end with it, and no step of the Dockerfile reaches a network.
_APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--net")
_WHEELS = "/mnt"
_PIP = (
    f"[global]\nno-index = true\nfind-links = {_WHEELS}\ndisable-pip-version-check = true\nroot-user-action = ignore\n"
)
# A build adds about ten layers of which the next one uses half.
_MOST_LAYERS = 300
_BUILD_SECONDS = 1800.0


def base_inputs() -> bytes:
    return repr((_SUITE, _BASE_PACKAGES, DEBIAN_WASTE, COMPILE, pip.__version__)).encode()


def base(root: Path, parent: Path | None, report: Report) -> None:
    """Fills a Debian with the files that python:slim has too, as far as the Dockerfile uses them."""
    System(_BASE_PACKAGES, suite=_suite()).build(root, parent, report)
    (version,) = (path.name for path in (root / "usr/lib").glob("python3.*"))
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    packages = root / "usr/local/lib" / version / "dist-packages/pip"
    shutil.copytree(Path(pip.__file__).parent, packages, ignore=shutil.ignore_patterns("__pycache__"))


def _suite() -> str:
    """Returns the suite to bootstrap; empty stands for this machine's own, since Ubuntu has no Debian's."""
    return _SUITE if platform.freedesktop_os_release()["ID"] == "debian" else ""


def dependencies_inputs() -> bytes:
    return digest(REPOSITORY / name for name in (*_BUILD_FILES, *LOCKS))


def inputs() -> bytes:
    """Returns a digest of the build's context."""
    found = [path for name in CONTEXT for path in (REPOSITORY / name, *(REPOSITORY / name).rglob("*"))]
    built = ("__pycache__", ".egg-info")
    sources = [path for path in found if path.is_file() and not any(part.endswith(built) for part in path.parts)]
    return digest([*sources, *(REPOSITORY / name for name in (*_BUILD_FILES, *LOCKS))])


def build(stage: str, below: Path, target: Path, tag: str, report: Report, context: Path = REPOSITORY) -> None:
    """Builds a stage of the Dockerfile on the base image `below`, and writes it to `target` with this tag.

    Store and packages lie beside `target`. Needs root. Raises LocalClusterError with the last lines of buildah.
    """
    debian.require_root("local images")
    debian.ensure_packages(_BUILDAH, report)
    store = target.parent / "buildah"
    _empty_if_full(store, report)
    wheels = _wheels(target.parent, _python_of(below), report)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as scratch:
        settings, done = Path(scratch) / "pip.conf", Path(scratch) / "image.tar"
        settings.write_text(_PIP)
        command = [*_APART, "buildah", "--root", str(store), "--runroot", f"{scratch}/run", "--storage-driver=overlay"]
        # Without a daemon and without namespaces of its own, since those need control groups that a container lacks.
        how = ["--isolation=chroot", "--layers", f"--timestamp={archive.TIME_SECONDS}", "--quiet"]
        given = ["--build-arg", f"PYTHON_IMAGE=docker-archive:{below}", "--volume", f"{wheels}:{_WHEELS}:ro"]
        given += ["--volume", f"{settings}:/etc/pip.conf:ro", "--target", stage, "--tag", tag]
        run(*command, "bud", *how, *given, context, timeout_seconds=_BUILD_SECONDS)
        run(*command, "push", "--quiet", tag, f"docker-archive:{done}:{tag}")
        done.replace(target)


def _wheels(folder: Path, python: str, report: Report) -> Path:
    """Returns a folder with all locked packages for this version of Python; that of other locks is removed."""
    locks = [REPOSITORY / name for name in LOCKS]
    wanted = folder / f"wheels-{hashlib.sha256(digest(locks) + python.encode()).hexdigest()[:12]}"
    if wanted.exists():
        return wanted
    report("fetching the packages of the Dockerfile (about 60 MB)")
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
        named = [word for lock in locks for word in ("--requirement", str(lock))]
        how = ["--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:", f"--python-version={python}"]
        run(sys.executable, "-m", "pip", "download", *how, "--dest", f"{scratch}/wheels", *named)
        for old in folder.glob("wheels-*"):
            shutil.rmtree(old)
        Path(scratch, "wheels").rename(wanted)
    return wanted


def _python_of(image: Path) -> str:
    """Returns the version of Python in an image, such as "3.13"."""
    for layer in archive.layers(image):
        with layer.path.open("rb") as content:
            content.seek(layer.offset)
            with tarfile.open(fileobj=content, mode="r|") as tar:
                for entry in tar:
                    if found := re.fullmatch(r"\./usr/bin/python(3\.\d+)", entry.name):
                        return found[1]
    raise LocalClusterError(f"{image} has no /usr/bin/python3.x: remove it, it is then built again")


def _empty_if_full(store: Path, report: Report) -> None:
    try:
        layers = msgspec.json.decode((store / "overlay-layers/layers.json").read_bytes(), type=list[msgspec.Raw])
    except FileNotFoundError:
        return
    if len(layers) > _MOST_LAYERS:
        report(f"emptying buildah's store, which has {len(layers)} layers")
        shutil.rmtree(store)
