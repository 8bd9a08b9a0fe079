"""The rules of localcluster/kubernetesmodule.py, and of the modules that it has written. `go` is a script here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from localcluster import kubernetesmodule
from localcluster.errors import LocalClusterError
from localcluster.kubernetesversions import CONTROL_PLANE_MODULE, KUBERNETES_PROGRAMS, default_minor, known_minors
from localcluster.program import required_version
from localcluster.report import silent

UPSTREAM = """module k8s.io/kubernetes

go 1.24.0

require k8s.io/api v0.0.0

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/mount-utils => ./staging/src/k8s.io/mount-utils
	example.com/other => example.com/other v1.0.0
)
"""
OTHERS = [minor for minor in known_minors() if minor != default_minor()]


def go(machine: Path, tidy: str) -> None:
    """Puts a `go` on PATH that reports UPSTREAM as the go.mod of Kubernetes and runs a shell line as `go mod tidy`."""
    (machine / "upstream").write_text(UPSTREAM)
    answer = json.dumps({"GoMod": str(machine / "upstream")})
    program = machine / "go"
    program.write_text(
        "#!/bin/sh\n[ $1 = env ] && { echo go1.99.0; exit; }\n"
        f"[ $2 = download ] && {{ echo '{answer}'; exit; }}\n{tidy}\n"
    )
    program.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_a_module_requires_the_version_and_pins_its_staging_modules(machine: Path) -> None:
    go(machine, "echo hashes > go.sum")
    folder = kubernetesmodule.lock("1.34.4", silent, machine / "modules")
    assert folder == machine / "modules" / "1.34"
    text = (folder / "go.mod").read_text()
    assert required_version(folder / "go.mod", "k8s.io/kubernetes") == "v1.34.4"
    assert "\ngo 1.24.0\n" in text
    assert re.findall(r"=> (\S+ \S+)", text) == ["k8s.io/api v0.34.4", "k8s.io/mount-utils v0.34.4"]
    assert re.findall(r"^\tk8s.io/kubernetes/cmd/(\S+)$", text, re.MULTILINE) == [*KUBERNETES_PROGRAMS]
    assert (folder / "go.sum").read_text() == "hashes\n"


def test_a_failure_is_one_line_with_the_last_words_of_go(machine: Path) -> None:
    go(machine, "echo first >&2; echo no such version >&2; exit 1")
    with pytest.raises(LocalClusterError, match=r"`mod tidy` in \S+ failed: no such version$"):
        kubernetesmodule.lock("1.34.4", silent, machine / "modules")


@pytest.mark.parametrize("text", ["1.34", "v1.34.4", "2.0.0", "latest"])
def test_only_a_patch_version_can_be_locked(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        kubernetesmodule.main([text])
    assert ended.value.code == 2
    assert "such as 1.34.4" in capsys.readouterr().err


@pytest.mark.parametrize("minor", OTHERS)
def test_the_locked_modules_are_of_one_version_each(minor: str) -> None:
    go_mod = CONTROL_PLANE_MODULE / minor / "go.mod"
    version = required_version(go_mod, "k8s.io/kubernetes")
    assert version.startswith(f"v{minor}.")
    staging = set(re.findall(r"^\tk8s\.io/\S+ => k8s\.io/\S+ (\S+)$", go_mod.read_text(), re.MULTILINE))
    assert staging == {version.replace("v1.", "v0.")}
    assert f"k8s.io/kubernetes {version} h1:" in (go_mod.parent / "go.sum").read_text()
