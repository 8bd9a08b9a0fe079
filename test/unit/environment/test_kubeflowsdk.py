"""The environment of Kubeflow's SDK; no package is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from environment import build, kubeflowsdk
from environment.build import EnvironmentBuildError
from environment.kubeflowsdk import kubeflow_sdk_python
from localcluster.errors import LocalClusterError


def test_an_environment_that_cannot_be_made_is_an_error_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path, lock: Path) -> None:
        raise EnvironmentBuildError("see above")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "make_separate", fail)
    with pytest.raises(LocalClusterError, match="Kubeflow's SDK: see above"):
        kubeflow_sdk_python()


def test_the_lock_pins_a_release_of_the_sdk() -> None:
    assert build.requirement(kubeflowsdk.KUBEFLOW_SDK_LOCK.read_text(), "kubeflow").startswith("kubeflow==0.5.")
