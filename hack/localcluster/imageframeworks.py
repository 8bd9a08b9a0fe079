"""The content of the images of training frameworks, each a layer on the base image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from localcluster import imagebuild
from localcluster.binaries import HACK
from localcluster.imagepackages import COMPILE, DEBIAN_WASTE, PythonPackages, digest, install_debian, remove
from localcluster.report import Report

_LOCKS = HACK / "requirements"
# Headers, and a C compiler's library that only the converter of TensorFlow Lite loads.
_TENSORFLOW_WASTE = ("tensorflow/include", "clang/native", "bin")
_PYTHON_WASTE = ("bin", "*/include", "*/tests", "*/*/tests", "*/*/*/tests")
_TORCH = ("python3-torch",)
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
_OLDER_TORCH_WASTE = (*_TORCH_WASTE, "usr/lib/*/libz3*")
# Python 3.11 omits zero among the values of a flag, which this torch does not expect: torchrun would not start.
_TORCHRUN = "/usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py"
_TORCHRUN_FIX = f"sed -i 's/for s in Std:/for s in (Std.NONE, *Std):/' {_TORCHRUN}"
# The first release of Debian whose torch is new enough for Hugging Face's transformers.
_TRIXIE = "trixie"
_TRIXIE_PACKAGES = ("python3", "ca-certificates", *_TORCH)
_TRIXIE_WASTE = (*DEBIAN_WASTE, *_TORCH_WASTE)
_MPI = ("openmpi-bin", "openssh-server", "openssh-client", "python3-mpi4py")
# An image must not contain a host key, since all its containers would share it.
_MPI_WASTE = ("etc/ssh/ssh_host_*",)


def tensorflow_inputs() -> bytes:
    return digest([_LOCKS / "tensorflow.txt"]) + repr(_TENSORFLOW_WASTE).encode()


def tensorflow(root: Path, parent: Path | None, report: Report) -> None:
    report("fetching TensorFlow's wheels (about 300 MB)")
    _python(root, parent, "tensorflow", _TENSORFLOW_WASTE)


def jax_inputs() -> bytes:
    return digest([_LOCKS / "jax.txt"]) + repr(_PYTHON_WASTE).encode()


def jax(root: Path, parent: Path | None, report: Report) -> None:
    """Adds JAX for CPUs."""
    report("fetching JAX's wheels (about 140 MB)")
    _python(root, parent, "jax", _PYTHON_WASTE)


def xgboost_inputs() -> bytes:
    return digest([_LOCKS / "xgboost.txt"]) + repr(_PYTHON_WASTE).encode()


def xgboost(root: Path, parent: Path | None, report: Report) -> None:
    """Adds XGBoost for CPUs with its tracker: the same module, without the libraries for GPUs."""
    report("fetching XGBoost's wheels (about 60 MB)")
    _python(root, parent, "xgboost", _PYTHON_WASTE)


def torch_inputs() -> bytes:
    return repr((_TORCH, _OLDER_TORCH_WASTE, _TORCHRUN_FIX, DEBIAN_WASTE)).encode()


def torch(root: Path, parent: Path | None, report: Report) -> None:
    """Adds Debian's torch with gloo and torchrun, since the wheels for Linux require gigabytes of CUDA."""
    report("fetching torch and its dependencies from this machine's apt mirror (about 240 MB)")
    install_debian(root, parent, _TORCH, _OLDER_TORCH_WASTE, _TORCHRUN_FIX)


def trixie_inputs() -> bytes:
    return repr((_TRIXIE, _TRIXIE_PACKAGES, _TRIXIE_WASTE, COMPILE)).encode()


def trixie(root: Path, parent: Path | None, report: Report) -> None:
    """Fills a newer Debian with its torch."""
    report("fetching torch 2.6 and its dependencies from this machine's apt mirror (about 300 MB)")
    imagebuild.system(root, _TRIXIE_PACKAGES, _TRIXIE_WASTE, report, _TRIXIE)


def transformers_inputs() -> bytes:
    return digest([_LOCKS / "transformers.txt"]) + repr(_PYTHON_WASTE).encode()


def transformers(root: Path, parent: Path | None, report: Report) -> None:
    """Adds Hugging Face's transformers, and Kubeflow's SDK. The lock omits what Debian's torch brings."""
    report("fetching the wheels of transformers (about 40 MB)")
    _python(root, parent, "transformers", _PYTHON_WASTE, "--no-deps")


def mpi_inputs() -> bytes:
    return repr((_MPI, _MPI_WASTE, DEBIAN_WASTE)).encode()


def mpi(root: Path, parent: Path | None, report: Report) -> None:
    """Adds Open MPI, mpi4py, and OpenSSH, through which mpirun starts its processes."""
    report("fetching Open MPI and OpenSSH from this machine's apt mirror (about 20 MB)")
    install_debian(root, parent, _MPI, _MPI_WASTE)
    # sshd requires this empty folder and does not create it.
    (root / "run/sshd").mkdir(parents=True, mode=0o755)


def _python(root: Path, parent: Path | None, name: str, waste: Sequence[str], *options: str) -> None:
    with PythonPackages(root, parent) as packages:
        packages.install([*options, "--require-hashes", "--requirement", str(_LOCKS / f"{name}.txt")])
        remove(packages.folder, waste)
        packages.compile()
