"""The environments of Kubeflow's SDKs; no package is installed."""

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


def test_the_locks_pin_releases_of_the_sdks() -> None:
    assert build.requirement(kubeflowsdk.KUBEFLOW_SDK_LOCK.read_text(), "kubeflow").startswith("kubeflow==0.5.")
    training = build.requirement(kubeflowsdk.TRAINING_SDK_LOCK.read_text(), "kubeflow-training")
    assert training.startswith("kubeflow-training==1.9.4 ")
