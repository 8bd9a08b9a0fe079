"""The environment of Kubeflow's Python SDK in the user's cache, to test that it works with the controller unmodified.

    kubeflow_sdk_python()    # …/kubeflow-sdk/environment/bin/python

The SDK is no dependency of this project, and requires other versions of common packages, so tests start a Python of its
own that has exactly the packages of `hack/requirements/kubeflow-sdk.txt`.
"""

from __future__ import annotations

from pathlib import Path

from environment import build
from environment.build import EnvironmentBuildError
from localcluster.errors import LocalClusterError
from localcluster.locks import locked
from localcluster.program import HACK, cache_root

KUBEFLOW_SDK_LOCK = HACK / "requirements" / "kubeflow-sdk.txt"


def kubeflow_sdk_python() -> Path:
    """Returns the path of that Python, whose environment is made first if necessary. Raises LocalClusterError."""
    root = cache_root() / "kubeflow-sdk"
    with locked(root / "lock"):
        try:
            build.make_separate(root / "environment", KUBEFLOW_SDK_LOCK)
        except EnvironmentBuildError as error:
            raise LocalClusterError(f"the environment of Kubeflow's SDK: {error}") from None
    return root / "environment" / "bin" / "python"
