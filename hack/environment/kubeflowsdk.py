"""The environment of Kubeflow's Python SDK in the user's cache, to test that it works with the controller unmodified.

    kubeflow_sdk_python()    # …/kubeflow-sdk/<key>/bin/python

The SDK is no dependency of this project, and requires other versions of common packages, so tests start a Python of its
own that has exactly the packages of `hack/requirements/kubeflow-sdk.txt`.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from environment import build
from environment.build import EnvironmentBuildError
from localcluster.errors import LocalClusterError
from localcluster.locks import locked
from localcluster.program import HACK, cache_root

KUBEFLOW_SDK_LOCK = HACK / "requirements" / "kubeflow-sdk.txt"
_KEY_DIGITS = 12
# Other checkouts may use environments of other locks at the same time.
_KEPT = 3


def kubeflow_sdk_python() -> Path:
    """Returns the path of that Python, whose environment is made first if necessary. Raises LocalClusterError."""
    root = cache_root() / "kubeflow-sdk"
    folder = root / _key()
    with locked(root / "lock"):
        try:
            build.make_separate(folder, KUBEFLOW_SDK_LOCK)
        except EnvironmentBuildError as error:
            raise LocalClusterError(f"the environment of Kubeflow's SDK: {error}") from None
        folder.touch()
        _forget_old(root)
    return folder / "bin" / "python"


def _key() -> str:
    """Returns a hash of what an environment depends on: its packages, and the Python that it links to."""
    python = f"{sys.version}\n{sys.base_prefix}\n"
    return hashlib.sha256(python.encode() + KUBEFLOW_SDK_LOCK.read_bytes()).hexdigest()[:_KEY_DIGITS]


def _forget_old(root: Path) -> None:
    folders = sorted((path for path in root.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in folders[:-_KEPT]:
        shutil.rmtree(path)
