"""The record of a release in the repository: its manifests as they are applied, and its program.

    crds.yaml             the kinds
    OVERLAY.yaml          what the overlay contains, with the release's image tag
    program.tar.xz        src/tfjob_controller, so that an upgrade from it can be tested without git
    release.yaml          version and commit

Everything comes from the commit, nothing from the working tree.
"""

from __future__ import annotations

import io
import lzma
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from localcluster import binaries

ROOT = Path(__file__).resolve().parents[2]
RELEASES = ROOT / "test" / "data" / "releases"
OVERLAYS = ("standalone", "gang-scheduling")
PROGRAM = "program.tar.xz"
_PACKAGE = "src/tfjob_controller"
_IMAGE = "localhost/tfjob-controller"
_CRDS = "crds"

Object = dict[str, Any]


class ReleaseError(Exception):
    """An error in one line, with its remedy."""


def take(version: str, commit: str, root: Path = ROOT) -> dict[str, bytes]:
    """Returns the files of a release, by name, from the repository at `root`. Raises ReleaseError."""
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        _unpack(_git(root, "archive", commit), tree)
        check_version(tree, version)
        rendered = {overlay: _render(tree, overlay, version) for overlay in (_CRDS, *OVERLAYS)}
    files = {f"{overlay}.yaml": _yaml(objects) for overlay, objects in rendered.items()}
    files[PROGRAM] = lzma.compress(_git(root, "archive", commit, _PACKAGE), preset=9 | lzma.PRESET_EXTREME)
    full = _git(root, "rev-parse", f"{commit}^{{commit}}").decode().strip()
    return files | {"release.yaml": _yaml([{"version": version, "commit": full}])}


def check_version(tree: Path, version: str) -> None:
    """Checks that the version in the tree is this one. Raises ReleaseError."""
    said = re.search(r"^version = (.+)$", (tree / "setup.cfg").read_text(), re.MULTILINE)
    if said is None or said[1] != version:
        raise ReleaseError(f"setup.cfg says version {said and said[1]}, not {version}: change it and commit")
    if f"\n## {version}" not in (tree / "CHANGELOG.md").read_text():
        raise ReleaseError(f"CHANGELOG.md has no section {version}: write down what an upgrade to it changes")


def _render(tree: Path, overlay: str, version: str) -> list[Object]:
    folder = tree / "release"
    folder.mkdir(exist_ok=True)
    images = [{"name": _IMAGE, "newTag": version}]
    (folder / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": [f"../manifests/overlays/{overlay}"], "images": images})
    )
    done = subprocess.run(
        [str(binaries.ensure("kubectl")), "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"overlay {overlay} cannot be rendered: {done.stderr.strip()}")
    return list(yaml.safe_load_all(done.stdout))


def _yaml(objects: Iterable[Object]) -> bytes:
    return yaml.safe_dump_all(objects, sort_keys=True, width=120).encode()


def _unpack(archive: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")


def _git(root: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]}: {done.stderr.decode().strip()}")
    return done.stdout
