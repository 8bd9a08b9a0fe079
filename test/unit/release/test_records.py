"""What is recorded of releases, and that this tree is good for who has them."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from release.__main__ import complaints, present_crds, verdict_on
from release.records import Release, exceptions, releases
from release.snapshot import ReleaseError, check_version

RELEASED = releases()
ids = [each.version for each in RELEASED]


def test_the_crds_of_this_tree_accept_all_that_released_ones_accepted() -> None:
    assert list(complaints()) == []


def test_an_incompatible_change_of_this_trees_crds_is_reported() -> None:
    release, crds = RELEASED[-1], copy.deepcopy(present_crds())
    (tfjobs,) = [each for each in crds if each["metadata"]["name"] == "tfjobs.kubeflow.org"]
    schema = tfjobs["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["replicaSpecs"]
    (found,) = verdict_on(release, crds).unwanted
    assert str(found).startswith("tfjobs.kubeflow.org v1alpha1 spec.replicaSpecs: removed: ")


@pytest.mark.parametrize("release", RELEASED, ids=ids)
def test_a_release_holds_its_kinds_its_overlays_and_its_program(release: Release, tmp_path: Path) -> None:
    assert {each["kind"] for each in release.crds} == {"CustomResourceDefinition"}
    source = release.unpack_program(tmp_path)
    for overlay in ("standalone", "gang-scheduling"):
        objects = release.objects(overlay)
        images = {
            container["image"]
            for each in objects
            if each["kind"] == "Deployment"
            for container in each["spec"]["template"]["spec"]["containers"]
        }
        assert f"localhost/tfjob-controller:{release.version}" in images
        assert "CustomResourceDefinition" not in {each["kind"] for each in objects}
    code = "import tfjob_controller; print(tfjob_controller.__file__)"
    environment = {"PYTHONPATH": str(source)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(source / "tfjob_controller" / "__init__.py")


def test_releases_come_in_their_order(tmp_path: Path) -> None:
    for version in ("0.10.0", "0.9.1", "0.9.0"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "release.yaml").touch()
    assert [each.version for each in releases(tmp_path)] == ["0.9.0", "0.9.1", "0.10.0"]


ENTRY = {
    "release": "0.1.0",
    "crd": "a.b",
    "version": "v1",
    "path": "spec.a",
    "rule": "bounds",
    "reason": "nobody used it",
}


def test_an_exception_belongs_to_one_release(tmp_path: Path) -> None:
    (tmp_path / "exceptions.yaml").write_text(yaml.safe_dump([ENTRY]))
    (found,) = exceptions("0.1.0", tmp_path)
    assert (found.crd, found.path, found.why) == ("a.b", "spec.a", "nobody used it")
    assert exceptions("0.2.0", tmp_path) == []


def test_an_exception_without_a_reason_is_refused(tmp_path: Path) -> None:
    (tmp_path / "exceptions.yaml").write_text(yaml.safe_dump([{**ENTRY, "reason": ""}]))
    with pytest.raises(ValueError, match=r"a\.b v1 spec\.a bounds has no reason"):
        exceptions("0.1.0", tmp_path)


@pytest.mark.parametrize(
    ("version", "changelog", "words"),
    [
        ("0.1.0", "## 0.2.0", "setup.cfg says version 0.1.0, not 0.2.0"),
        ("0.2.0", "## 0.1.0", "CHANGELOG.md has no section 0.2.0"),
    ],
)
def test_a_tree_that_says_otherwise_is_not_released(tmp_path: Path, version: str, changelog: str, words: str) -> None:
    (tmp_path / "setup.cfg").write_text(f"[metadata]\nversion = {version}\n")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{changelog}\n")
    with pytest.raises(ReleaseError, match=words):
        check_version(tmp_path, "0.2.0")
