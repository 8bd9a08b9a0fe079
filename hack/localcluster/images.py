"""Builds container images from local parts, without a registry, and keeps them in the user's cache.

    tar = images.ensure("localhost/tensorflow")     # builds it and its base if necessary

An image is named in the cache by a hash of all its inputs (`Recipe.inputs`), so a changed recipe, lock or source file
results in a new image, and an unchanged image is not built again. `docker load`, `kind load image-archive` and
`minikube image load` accept these tars as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from localcluster import archive, dockerimage
from localcluster.binaries import cache_root, kubernetes_version
from localcluster.errors import LocalClusterError
from localcluster.imagelayers import DEBIAN_WASTE, DebianPackages, KubernetesProgram, PythonPackages, System
from localcluster.locks import locked
from localcluster.report import Report, to_stderr

# Part of every image's name. Increase it when the format of the layers changes.
_FORMAT = "1"
_KEY_DIGITS = 12
_KEPT_VERSIONS = 3
_Build = Callable[[Path, Path | None, Report], None]
_Inputs = Callable[[], bytes]


class Content(Protocol):
    """The files of a layer (localcluster.imagelayers)."""

    def inputs(self) -> bytes: ...

    def build(self, root: Path, parent: Path | None, report: Report) -> None: ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """Describes an image: its parent's layers, and another one from `build(folder, parent's tar, report)`, if any.

    With a `stage` it is that stage of the Dockerfile on the image `localhost/python`; `parent` then is the image whose
    layers are below its last one. `version` returns the tag that the manifests name, or "" if they name `latest`.
    """

    inputs: _Inputs
    build: _Build | None = None
    settings: archive.Settings = field(default_factory=archive.Settings)
    parent: str | None = None
    version: Callable[[], str] = str
    stage: str = ""


_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PYTHON = {"PATH": _PATH, "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
PAUSE, BASE = "localhost/pause", "localhost/base"
TENSORFLOW, TORCH, JAX = "localhost/tensorflow", "localhost/torch", "localhost/jax"
XGBOOST, MPI = "localhost/xgboost", "localhost/mpi"
TRANSFORMERS = "localhost/transformers"
FRAMEWORKS = (TENSORFLOW, TORCH, JAX, XGBOOST, MPI, TRANSFORMERS)
CONTROLLER, INITIALIZER = "localhost/tfjob-controller", "localhost/tfjob-initializer"
KUBE_SCHEDULER, KUBECTL_DELIVERY = "localhost/kube-scheduler", "localhost/kubectl-delivery"
_RUNTIME, _STORAGE = "localhost/tfjob-controller-runtime", "localhost/tfjob-initializer-runtime"
_TRIXIE, _DOCKERFILE_BASE = "localhost/trixie", "localhost/python"

# Headers, and a C compiler's library that only the converter of TensorFlow Lite loads.
_TENSORFLOW_WASTE = ("tensorflow/include", "clang/native", "bin")
_PYTHON_WASTE = ("bin", "*/include", "*/tests", "*/*/tests", "*/*/*/tests")
# Debian's torch depends on OpenCV for videos and displays. The libraries that are linked must exist; what they load
# on demand (drivers, fonts, maps), tests and build tools are not needed.
_TORCH_WASTE = (
    "usr/lib/*/dri/*",
    "usr/lib/*/libLLVM*",
    "usr/lib/*/libmfxhw*",
    "usr/lib/*/mfx/*",
    "usr/lib/*/qt5/*",
    "usr/lib/libtorch-test/*",
    "usr/lib/python3/dist-packages/sympy/*/tests/*",
    "usr/lib/python3/dist-packages/sympy/*/*/tests/*",
    "usr/lib/python3/dist-packages/torch/bin/test_*",
    "usr/lib/python3/dist-packages/torch/bin/*StoreTest",
    "usr/lib/python3/dist-packages/torch/include/*",
    "usr/lib/python3/dist-packages/torch/test/*",
    "usr/lib/python3/dist-packages/numpy/*/tests/*",
    "usr/share/X11/*",
    "usr/share/fonts/*",
    "usr/share/gdal/*",
    "usr/share/gdcm*",
    "usr/share/icons/*",
    "usr/share/iso-codes/*",
    "usr/share/libwacom/*",
    "usr/share/proj/*",
    "usr/share/xml/*",
)
# Python 3.11 omits zero among the values of a flag, which this torch does not expect: torchrun would not start.
_TORCHRUN = "/usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py"
_TORCHRUN_FIX = f"sed -i 's/for s in Std:/for s in (Std.NONE, *Std):/' {_TORCHRUN}"
_PAUSE = ("/usr/bin/sleep", "infinity")
_PYTHON_PACKAGES = ("python3", "ca-certificates")
# For the launchers of MPIJobs of kubeflow.org/v1. mpirun fails if a worker does not run yet.
_DELIVER_KUBECTL = """\
set -e
cp /usr/local/bin/kubectl "$TARGET_DIR"
while read -r host slots; do
  [ "$host" != "$HOSTNAME" ] || continue
  until kubectl wait --for=condition=Ready --timeout=60s "pod/$host" </dev/null; do sleep 1; done
done </etc/mpi/hostfile
"""


def _recipe(content: Content, settings: archive.Settings, parent: str | None = None) -> Recipe:
    return Recipe(content.inputs, content.build, settings, parent)


def _framework(content: Content, parent: str = BASE) -> Recipe:
    return _recipe(content, archive.Settings(command=("python3",), environment=_PYTHON), parent)


def _kubernetes(name: str, *entrypoint: str) -> Recipe:
    content, settings = KubernetesProgram(name), archive.Settings(entrypoint=entrypoint)
    return Recipe(content.inputs, content.build, settings, BASE, kubernetes_version)


RECIPES = {
    # It only holds a pod's namespaces.
    PAUSE: Recipe(bytes, settings=archive.Settings(entrypoint=_PAUSE, user="65535:65535"), parent=BASE),
    BASE: _recipe(System(_PYTHON_PACKAGES), archive.Settings(command=("/bin/sh",), environment=_PYTHON)),
    TENSORFLOW: _framework(PythonPackages("tensorflow", _TENSORFLOW_WASTE, "300 MB")),
    # Debian's torch has gloo and torchrun; the wheels for Linux require gigabytes of CUDA.
    TORCH: _framework(
        DebianPackages(("python3-torch",), (*_TORCH_WASTE, "usr/lib/*/libz3*"), "240 MB", amend=_TORCHRUN_FIX)
    ),
    JAX: _framework(PythonPackages("jax", _PYTHON_WASTE, "140 MB")),
    XGBOOST: _framework(PythonPackages("xgboost", _PYTHON_WASTE, "60 MB")),
    # mpirun starts its processes through OpenSSH, whose server requires an empty folder and does not create it. An
    # image must not contain a host key, since all its containers would share it.
    MPI: _framework(
        DebianPackages(
            ("openmpi-bin", "openssh-server", "openssh-client", "python3-mpi4py"),
            ("etc/ssh/ssh_host_*",),
            "20 MB",
            amend="mkdir /run/sshd",
        )
    ),
    # The first release of Debian whose torch is new enough for Hugging Face's transformers.
    _TRIXIE: _recipe(
        System((*_PYTHON_PACKAGES, "python3-torch"), (*DEBIAN_WASTE, *_TORCH_WASTE), "trixie"),
        archive.Settings(environment=_PYTHON),
    ),
    # The lock, which also has Kubeflow's SDK, omits what Debian's torch brings.
    TRANSFORMERS: _framework(PythonPackages("transformers", _PYTHON_WASTE, "40 MB", ("--no-deps",)), _TRIXIE),
    _DOCKERFILE_BASE: Recipe(dockerimage.base_inputs, dockerimage.base, archive.Settings(environment={"PATH": _PATH})),
    _RUNTIME: Recipe(dockerimage.dependencies_inputs, stage="base", parent=_DOCKERFILE_BASE),
    CONTROLLER: Recipe(dockerimage.inputs, stage="controller", parent=_RUNTIME),
    _STORAGE: Recipe(dockerimage.dependencies_inputs, stage="base-initializer", parent=_RUNTIME),
    INITIALIZER: Recipe(dockerimage.inputs, stage="initializer", parent=_STORAGE),
    KUBE_SCHEDULER: _kubernetes("kube-scheduler", "kube-scheduler"),
    KUBECTL_DELIVERY: _kubernetes("kubectl", "sh", "-c", _DELIVER_KUBECTL),
}


def folder() -> Path:
    """Returns the folder of the images. It can be removed; images are then built again."""
    return cache_root() / "images"


def plain(name: str) -> str:
    """Returns the name without its tag. Raises LocalClusterError if the image does not have that tag."""
    short, _, tag = name.partition(":")
    if short not in RECIPES or (tag and name not in tagged(short)):
        raise LocalClusterError(f"no recipe for image {name!r}; known images are {', '.join(RECIPES)}", exit_code=2)
    return short


def tagged(short: str) -> list[str]:
    """Returns all names of the image on nodes: its tags are `latest` and its version, if it has one."""
    version = RECIPES[short].version()
    return [f"{short}:latest", *([f"{short}:{version}"] if version else [])]


def key(name: str) -> str:
    """Returns twelve hex digits of a hash of all inputs of the image."""
    recipe = RECIPES[plain(name)]
    parent = key(recipe.parent) if recipe.parent else ""
    version = recipe.version()
    parts = [_FORMAT, parent, repr(recipe.settings.document()), *([version] if version else [])]
    return hashlib.sha256("\n".join(parts).encode() + recipe.inputs()).hexdigest()[:_KEY_DIGITS]


def path(name: str) -> Path:
    """Returns the path of the image, whether or not it exists."""
    return folder() / f"{plain(name).rpartition('/')[2]}-{key(name)}.tar"


def ensure(name: str, report: Report = to_stderr) -> Path:
    """Returns the image's tar, built first if necessary (as root on Debian or Ubuntu). Raises LocalClusterError."""
    target = path(name)
    if not target.exists():
        with _locked():
            if not target.exists():
                _make(plain(name), target, report)
    return target


def _make(name: str, target: Path, report: Report) -> None:
    recipe, started = RECIPES[name], time.monotonic()
    parent = path(recipe.parent) if recipe.parent else None
    if recipe.parent and parent is not None and not parent.exists():
        _make(recipe.parent, parent, report)
    report(f"building image {name}")
    if recipe.stage:
        dockerimage.build(recipe.stage, path(_DOCKERFILE_BASE), target, tagged(name)[0], report)
    else:
        _pack(name, target, parent, report)
    _forget_old(target)
    size, seconds = target.stat().st_size / 1e6, time.monotonic() - started
    report(f"built image {name}: {size:,.0f} MB in {seconds:.0f} s, kept in {target}")


def _pack(name: str, target: Path, parent: Path | None, report: Report) -> None:
    """Writes the parent's layers, and one of the files that the recipe makes, if it makes any."""
    recipe = RECIPES[name]
    layers = archive.layers(parent) if parent else []
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder()) as scratch:
        if recipe.build is not None:
            root = Path(scratch) / "root"
            root.mkdir()
            recipe.build(root, parent, report)
            layers.append(archive.pack(root, Path(scratch) / "layer.tar"))
        archive.write(target, tagged(name), layers, recipe.settings)


def _forget_old(newest: Path) -> None:
    """Removes old images of this project, since each changed source file results in a new one. A few are kept."""
    versions = newest.parent.glob(f"{newest.stem[:-_KEY_DIGITS]}{'?' * _KEY_DIGITS}.tar")
    for path in sorted(versions, key=lambda path: path.stat().st_mtime)[:-_KEPT_VERSIONS]:
        path.unlink()


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Lets one process build while others wait; remains of a killed process are removed."""
    with locked(folder() / "lock"):
        for left in folder().glob(".build-*"):
            shutil.rmtree(left)
        yield
