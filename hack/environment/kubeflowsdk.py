"""The environments of Kubeflow's Python SDKs in the user's cache, to test that they work here unmodified.

    kubeflow_sdk_python()    # …/kubeflow-sdk/environment/bin/python: `kubeflow`, for Kubeflow Trainer
    training_sdk_python()    # …/training-sdk/environment/bin/python: `kubeflow-training`, for training-operator

The SDKs are no dependencies of this project, and require other versions of common packages, so tests start a Python of
their own that has exactly the packages of a lock in `hack/requirements`.
"""

from __future__ import annotations

from pathlib import Path

from environment import build
from environment.build import EnvironmentBuildError
from localcluster.errors import LocalClusterError
from localcluster.locks import locked
from localcluster.program import HACK, cache_root

KUBEFLOW_SDK_LOCK = HACK / "requirements" / "kubeflow-sdk.txt"
TRAINING_SDK_LOCK = HACK / "requirements" / "training-sdk.txt"


def kubeflow_sdk_python() -> Path:
    """Returns the path of that Python, whose environment is made first if necessary. Raises LocalClusterError."""
    return _python_of(KUBEFLOW_SDK_LOCK, "Kubeflow's SDK")


def training_sdk_python() -> Path:
    """Returns the path of that Python, whose environment is made first if necessary. Raises LocalClusterError."""
    return _python_of(TRAINING_SDK_LOCK, "training-operator's SDK")


def _python_of(lock: Path, name: str) -> Path:
    root = cache_root() / lock.stem
    with locked(root / "lock"):
        try:
            build.make_separate(root / "environment", lock)
        except EnvironmentBuildError as error:
            raise LocalClusterError(f"the environment of {name}: {error}") from None
    return root / "environment" / "bin" / "python"
