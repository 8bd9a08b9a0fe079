"""The recorded files of a release come from its commit, and can be applied unchanged."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from helpers.kubectl import MANIFESTS, Kubectl
from helpers.renderings import named, of_kind, render_overlay
from release.snapshot import ReleaseError, take

pytestmark = pytest.mark.cluster

VERSION = "7.8.9"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One with these manifests, in which something is not committed yet."""
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    package = tmp_path / "src" / "tfjob_controller"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("committed = True\n")
    (tmp_path / "setup.cfg").write_text(f"[metadata]\nversion = {VERSION}\n")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {VERSION}\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "-c", "commit.gpgsign=false")
    git(tmp_path, *who, "commit", "--quiet", "--message", "all")
    (tmp_path / "manifests" / "overlays" / "standalone" / "kustomization.yaml").write_text("nonsense")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_release_is_what_was_committed_with_its_version_as_the_tag(administrator: Kubectl, repository: Path) -> None:
    files = take(VERSION, "HEAD", repository)
    assert yaml.safe_load(files["release.yaml"]) == {"version": VERSION, "commit": git(repository, "rev-parse", "HEAD")}
    recorded = [*yaml.safe_load_all(files["crds.yaml"]), *yaml.safe_load_all(files["standalone.yaml"])]
    rendered = [each for overlay in ("crds", "standalone") for each in render_overlay(administrator, overlay)]
    (container,) = named(rendered, "Deployment", "tfjob-controller")["spec"]["template"]["spec"]["containers"]
    container["image"] = f"localhost/tfjob-controller:{VERSION}"
    assert sorted(recorded, key=str) == sorted(rendered, key=str)
    assert len(of_kind(recorded, "CustomResourceDefinition")) == len(list((MANIFESTS / "base" / "crds").glob("*.yaml")))


def test_a_commit_that_is_not_there_is_reported_in_one_line(repository: Path) -> None:
    with pytest.raises(ReleaseError, match=r"^git archive: .*nowhere"):
        take(VERSION, "nowhere", repository)
