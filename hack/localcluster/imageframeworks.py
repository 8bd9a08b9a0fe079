"""What is in the images of training frameworks, one layer each on the base image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from localcluster.binaries import HACK
from localcluster.imagepackages import DEBIAN_WASTE, PythonPackages, digest, install_debian, remove
from localcluster.report import Report

_LOCKS = HACK / "requirements"
# Headers to compile against, and a C compiler's library that only TensorFlow Lite's converter asks for.
_TENSORFLOW_WASTE = ("tensorflow/include", "clang/native", "bin")
_PYTHON_WASTE = ("bin", "*/include", "*/tests", "*/*/tests", "*/*/*/tests")
_TORCH = ("python3-torch",)
# Debian's torch can read videos and draw on screens, through OpenCV. The libraries for that are linked and must be
# there; what they would load later (drivers, fonts, maps) need not. Neither need tests, and tools for building.
_TORCH_WASTE = (
    "usr/lib/*/dri/*",
    "usr/lib/*/libLLVM*",
    "usr/lib/*/libz3*",
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
# Python 3.11 leaves zero out when it counts a flag's values, which this torch does not know: torchrun would not start.
_TORCHRUN = "/usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py"
_TORCHRUN_FIX = f"sed -i 's/for s in Std:/for s in (Std.NONE, *Std):/' {_TORCHRUN}"
_MPI = ("openmpi-bin", "openssh-server", "openssh-client", "python3-mpi4py")
# No key of a host may be in an image: all its containers would share it.
_MPI_WASTE = ("etc/ssh/ssh_host_*",)


def tensorflow_inputs() -> bytes:
    return digest([_LOCKS / "tensorflow.txt"]) + repr(_TENSORFLOW_WASTE).encode()


def tensorflow(root: Path, parent: Path | None, report: Report) -> None:
    report("fetching TensorFlow's wheels (about 300 MB)")
    _python(root, parent, "tensorflow", _TENSORFLOW_WASTE)


def jax_inputs() -> bytes:
    return digest([_LOCKS / "jax.txt"]) + repr(_PYTHON_WASTE).encode()


def jax(root: Path, parent: Path | None, report: Report) -> None:
    """JAX for CPUs."""
    report("fetching JAX's wheels (about 140 MB)")
    _python(root, parent, "jax", _PYTHON_WASTE)


def xgboost_inputs() -> bytes:
    return digest([_LOCKS / "xgboost.txt"]) + repr(_PYTHON_WASTE).encode()


def xgboost(root: Path, parent: Path | None, report: Report) -> None:
    """XGBoost for CPUs, with its tracker: the same module, without the libraries for GPUs."""
    report("fetching XGBoost's wheels (about 60 MB)")
    _python(root, parent, "xgboost", _PYTHON_WASTE)


def torch_inputs() -> bytes:
    return repr((_TORCH, _TORCH_WASTE, _TORCHRUN_FIX, DEBIAN_WASTE)).encode()


def torch(root: Path, parent: Path | None, report: Report) -> None:
    """Debian's torch, with gloo and torchrun: the wheels for Linux need gigabytes of CUDA."""
    report("fetching torch and its dependencies from this machine's apt mirror (about 240 MB)")
    install_debian(root, parent, _TORCH, _TORCH_WASTE, _TORCHRUN_FIX)


def mpi_inputs() -> bytes:
    return repr((_MPI, _MPI_WASTE, DEBIAN_WASTE)).encode()


def mpi(root: Path, parent: Path | None, report: Report) -> None:
    """Open MPI and mpi4py, and OpenSSH, through which mpirun starts its processes."""
    report("fetching Open MPI and OpenSSH from this machine's apt mirror (about 20 MB)")
    install_debian(root, parent, _MPI, _MPI_WASTE)
    # sshd wants it to be there, empty, and does not make it.
    (root / "run/sshd").mkdir(parents=True, mode=0o755)


def _python(root: Path, parent: Path | None, name: str, waste: Sequence[str]) -> None:
    with PythonPackages(root, parent) as packages:
        packages.install(["--require-hashes", "--requirement", str(_LOCKS / f"{name}.txt")])
        remove(packages.folder, waste)
        packages.compile()
