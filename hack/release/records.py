"""The releases that are recorded in the repository, and what this tree breaks of them on purpose.

`exceptions.yaml` holds a list; each entry has `release`, `crd`, `version`, `path`, `rule` as the check prints them, and
`reason`: why nobody is hurt, or why it had to be. It belongs into CHANGELOG.md too.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from release.crds import Incompatibility
from release.snapshot import PROGRAM, RELEASES

Object = dict[str, Any]


def documents(path: Path) -> list[Object]:
    # In C where it can be: CRDs are long.
    return list(yaml.load_all(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


@dataclass(frozen=True, slots=True)
class Release:
    folder: Path

    @property
    def version(self) -> str:
        return self.folder.name

    @property
    def crds(self) -> list[Object]:
        return self.objects("crds")

    def objects(self, name: str) -> list[Object]:
        """Of `crds`, or of another overlay."""
        return documents(self.folder / f"{name}.yaml")

    def unpack_program(self, folder: Path) -> Path:
        """Its package tfjob_controller; what goes into PYTHONPATH."""
        with tarfile.open(fileobj=io.BytesIO(lzma.decompress((self.folder / PROGRAM).read_bytes()))) as tar:
            tar.extractall(folder, filter="data")
        return folder / "src"


def releases(folder: Path = RELEASES) -> list[Release]:
    """The oldest first."""
    found = [path.parent for path in folder.glob("*/release.yaml")]
    return [Release(each) for each in sorted(found, key=lambda path: [int(part) for part in path.name.split(".")])]


def exceptions(release: str, folder: Path = RELEASES) -> list[Incompatibility]:
    """Raises ValueError for one without a reason."""
    given = yaml.safe_load((folder / "exceptions.yaml").read_text()) or []
    found = []
    for each in given:
        place = (each["crd"], each.get("version", ""), each.get("path", ""), each["rule"])
        if not each.get("reason"):
            raise ValueError(f"exceptions.yaml: {' '.join(place)} has no reason")
        if str(each["release"]) == release:
            found.append(Incompatibility(*place, why=each["reason"]))
    return found
