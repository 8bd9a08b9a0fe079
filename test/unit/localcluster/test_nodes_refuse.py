"""Where no real node can run, one line says why and what to do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from localcluster import cgroups, debian
from localcluster.cli import main
from localcluster.errors import LocalClusterError
from localcluster.report import silent


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def test_without_root_one_line_names_the_remedy(
    state_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["up", "--nodes", "2"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("error: real nodes need root")
    assert "KUBECONFIG=" in line


def test_a_machine_without_the_control_groups_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpu").mkdir()
    monkeypatch.setattr(cgroups, "MOUNT", tmp_path)
    with pytest.raises(LocalClusterError, match=r"no cgroup controllers cpuacct, cpuset, memory, pids .*KUBECONFIG="):
        cgroups.hierarchies()


def test_missing_packages_are_named_where_they_cannot_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(LocalClusterError, match="real nodes need iproute2, tini: install them"):
        debian.ensure_packages({"ip": "iproute2", "tini": "tini"}, silent)
