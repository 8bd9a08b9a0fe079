"""Only overlays of CRDs contain CRDs, so `kubectl delete -k` of any other one deletes no job.

The kustomizations are read as files, so that no overlay can be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.kubectl import CRDS, MANIFESTS
from localcluster.crds import documents

CRD = "CustomResourceDefinition"
# The names by which kustomize recognizes its file.
NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
# An overlay, a part of one, and a component: whatever a user may give to `kubectl delete -k`.
FOLDERS = sorted(path.parent for name in NAMES for path in MANIFESTS.rglob(name))
OVERLAY = MANIFESTS / "overlays" / "crds"
# The kinds of kubeflow.org/v1, which a cluster can have in the place of TFJob v1alpha1.
V1_CRDS = MANIFESTS / "base" / "crds-kubeflow-v1"
V1_OVERLAY = MANIFESTS / "overlays" / "crds-kubeflow-v1"

Object = dict[str, Any]


def files_of(folder: Path) -> Iterator[Path]:
    """The files that the kustomization in `folder` contains, by itself and by others that it names."""
    (path,) = [folder / name for name in NAMES if (folder / name).exists()]
    (kustomization,) = documents(path.read_text("utf-8"))
    for each in (*kustomization.get("resources", ()), *kustomization.get("components", ())):
        named = (folder / each).resolve()
        if named.is_dir():
            yield from files_of(named)
        else:
            yield named


def crds_of(folder: Path) -> list[str]:
    found = [each for path in files_of(folder) for each in documents(path.read_text("utf-8")) if each["kind"] == CRD]
    return sorted(each["metadata"]["name"] for each in found)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(MANIFESTS)))
def test_no_kustomization_but_those_of_crds_contains_one(folder: Path) -> None:
    assert bool(crds_of(folder)) == (folder in (OVERLAY, CRDS, V1_OVERLAY, V1_CRDS, V1_OVERLAY / "own"))


def test_the_overlay_of_the_crds_contains_every_crd_and_nothing_else() -> None:
    paths = list(files_of(OVERLAY))
    assert sorted(paths) == sorted(CRDS.glob("*.yaml"))
    assert {each["kind"] for path in paths for each in documents(path.read_text("utf-8"))} == {CRD}


def test_the_overlay_of_v1_has_its_own_tfjob_and_the_other_crds() -> None:
    """kustomize refuses two objects of one name, so the patch leaves out the other TFJob."""
    (kustomization,) = documents((V1_OVERLAY / "own" / "kustomization.yaml").read_text("utf-8"))
    (patch,) = kustomization["patches"]
    (left_out,) = documents(patch["patch"])
    assert (left_out["$patch"], left_out["kind"]) == ("delete", CRD)
    names = [*crds_of(V1_CRDS), *crds_of(CRDS)]
    names.remove(left_out["metadata"]["name"])
    assert len(names) == len(set(names)) == len(crds_of(OVERLAY)) - 1 + len(list(V1_CRDS.glob("*.yaml")))


@pytest.mark.parametrize("folder", [CRDS, V1_CRDS], ids=lambda folder: folder.name)
def test_a_folder_of_crds_can_also_be_applied_by_f(folder: Path) -> None:
    """kubectl would take a kustomization that ends in .yaml for an object."""
    others = {path.name for path in folder.iterdir() if path.suffix not in (".yaml", ".yml", ".json")}
    assert others == {"Kustomization"}
    assert all(each["kind"] == CRD for path in folder.glob("*.y*ml") for each in documents(path.read_text("utf-8")))
