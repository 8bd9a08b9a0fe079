"""Where the environment of Kubeflow's SDK is, and how many are kept; no package is installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from environment import build, kubeflowsdk
from environment.build import EnvironmentBuildError
from environment.kubeflowsdk import kubeflow_sdk_python
from localcluster.errors import LocalClusterError


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock that may be changed; environments are empty folders."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "make_separate", lambda folder, _: folder.mkdir(exist_ok=True))
    lock = tmp_path / "kubeflow-sdk.txt"
    lock.write_text("kubeflow==1\n")
    monkeypatch.setattr(kubeflowsdk, "KUBEFLOW_SDK_LOCK", lock)
    return lock


def test_each_lock_has_an_environment_of_its_own(lock: Path) -> None:
    first = kubeflow_sdk_python()
    assert kubeflow_sdk_python() == first
    lock.write_text("kubeflow==2\n")
    assert kubeflow_sdk_python() != first
    assert first.parents[1].exists()


def test_the_three_environments_that_were_used_last_are_kept(lock: Path) -> None:
    folders = []
    for number in range(4):
        lock.write_text(f"kubeflow=={number}\n")
        folder = kubeflow_sdk_python().parents[1]
        # The clock of a file system may not tell them apart.
        os.utime(folder, (number, number))
        folders.append(folder)
    assert [folder.exists() for folder in folders] == [False, True, True, True]


def test_an_environment_that_cannot_be_made_is_an_error_of_the_cluster(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path, lock: Path) -> None:
        raise EnvironmentBuildError("see above")

    monkeypatch.setattr(build, "make_separate", fail)
    with pytest.raises(LocalClusterError, match="Kubeflow's SDK: see above"):
        kubeflow_sdk_python()


def test_the_lock_pins_a_release_of_the_sdk() -> None:
    assert build.requirement(kubeflowsdk.KUBEFLOW_SDK_LOCK.read_text(), "kubeflow").startswith("kubeflow==0.5.")
