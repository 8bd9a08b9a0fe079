"""The releases that are recorded in the repository, and deliberate incompatibilities with them.

`exceptions.yaml` contains a list; each entry has `release`, `crd`, `version`, `path`, `rule` as the check prints them,
and `reason`: why no user is affected, or why the change is necessary. CHANGELOG.md must contain the reason too.
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
    # The parser in C, if it is available, since CRDs are long.
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
        """Returns the objects of `crds`, or of another overlay."""
        return documents(self.folder / f"{name}.yaml")

    def unpack_program(self, folder: Path) -> Path:
        """Extracts the release's package tfjob_controller; returns the folder for PYTHONPATH."""
        with tarfile.open(fileobj=io.BytesIO(lzma.decompress((self.folder / PROGRAM).read_bytes()))) as tar:
            tar.extractall(folder, filter="data")
        return folder / "src"


def releases(folder: Path = RELEASES) -> list[Release]:
    """Returns the releases, the oldest first."""
    found = [path.parent for path in folder.glob("*/release.yaml")]
    return [Release(each) for each in sorted(found, key=lambda path: [int(part) for part in path.name.split(".")])]


def exceptions(release: str, folder: Path = RELEASES) -> list[Incompatibility]:
    """Returns the exceptions. Raises ValueError for one without a reason."""
    given = yaml.safe_load((folder / "exceptions.yaml").read_text()) or []
    found = []
    for each in given:
        place = (each["crd"], each.get("version", ""), each.get("path", ""), each["rule"])
        if not each.get("reason"):
            raise ValueError(f"exceptions.yaml: {' '.join(place)} has no reason")
        if str(each["release"]) == release:
            found.append(Incompatibility(*place, why=each["reason"]))
    return found
