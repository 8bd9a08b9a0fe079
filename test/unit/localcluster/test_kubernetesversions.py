"""The rules of localcluster/kubernetesversions.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from localcluster import cli, kubernetesversions
from localcluster.errors import LocalClusterError
from localcluster.kubernetesversions import (
    CONTROL_PLANE_MODULE,
    chosen_minor,
    default_minor,
    known_minors,
    minor_of,
    module_folder,
)
from localcluster.program import required_version

REPOSITORY = Path(__file__).resolve().parents[3]


def test_without_a_choice_the_default_version_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES", raising=False)
    assert chosen_minor() == default_minor()
    assert module_folder(chosen_minor()) == "controlplane"


@pytest.mark.parametrize("text", ["1.34", "v1.34", " 1.34 "])
def test_a_minor_version_is_chosen_by_the_variable(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES", text)
    assert chosen_minor() == "1.34"
    assert module_folder("1.34") == "controlplane/1.34"


@pytest.mark.parametrize("text", ["1.12", "../1.34"])
def test_another_choice_is_one_line_that_names_the_versions(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    monkeypatch.setenv("KUBERNETES", text)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(LocalClusterError, match=r"choose one of 1\.33, 1\.34"):
        chosen_minor()
    assert cli.main(["up"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: KUBERNETES={text}: ")


def test_what_installs_the_operator_asks_for_the_oldest_version_that_tests_can_run_on() -> None:
    oldest = known_minors()[0]
    for page in ("README.md", "docs/install.md", "docs/production.md"):
        assert f"Kubernetes {oldest} or later" in (REPOSITORY / page).read_text(), page
    chart = yaml.safe_load((REPOSITORY / "manifests" / "helm" / "tfjob-controller" / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={oldest}.0-0"


def test_the_known_versions_are_ordered_and_end_with_the_default() -> None:
    assert known_minors() == ["1.33", "1.34", "1.35", default_minor()]
    assert kubernetesversions.VARIABLE == "KUBERNETES"


def test_the_minor_version_of_a_version() -> None:
    assert minor_of("v1.34.4") == "1.34"
    with pytest.raises(LocalClusterError, match="no version of Kubernetes"):
        minor_of("latest")


@pytest.mark.parametrize("minor", known_minors()[:-1])
def test_the_locked_modules_are_of_one_version_each(minor: str) -> None:
    go_mod = CONTROL_PLANE_MODULE / minor / "go.mod"
    version = required_version(go_mod, "k8s.io/kubernetes")
    assert version.startswith(f"v{minor}.")
    staging = set(re.findall(r"^\tk8s\.io/\S+ => k8s\.io/\S+ (\S+)$", go_mod.read_text(), re.MULTILINE))
    assert staging == {version.replace("v1.", "v0.")}
    assert f"k8s.io/kubernetes {version} h1:" in (go_mod.parent / "go.sum").read_text()
