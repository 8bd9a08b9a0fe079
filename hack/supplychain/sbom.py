"""Bills of materials of images in SPDX 2.3: `python -m supplychain.sbom FOLDER IMAGE.tar…` (`make sbom`).

Lists what is really installed in an image, and fails if a Python package of it stands in no lock.
"""

from __future__ import annotations

import datetime
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from license_expression import ExpressionError
from packaging.utils import canonicalize_name
from spdx_tools.common.spdx_licensing import spdx_licensing
from spdx_tools.spdx import model as spdx
from spdx_tools.spdx.writer.json import json_writer

from supplychain import imagecontent, lock
from supplychain.imagecontent import PYPI, Content, Package

LOCKS = Path(__file__).resolve().parents[1] / "requirements"
_DOCUMENT, _IMAGE = "SPDXRef-DOCUMENT", "SPDXRef-Image"
_PROJECT = "tfjob-controller"
# What the base image has of its own.
_OF_THE_BASE = frozenset({"pip"})


def document(content: Content, created: datetime.datetime) -> spdx.Document:
    """Returns the bill of materials of an image: it contains its packages."""
    title = content.title or "image"
    packages = [_package(package) for package in content.packages]
    image = spdx.Package(
        _IMAGE,
        title,
        spdx.SpdxNoAssertion(),
        version=content.version or None,
        files_analyzed=False,
        primary_package_purpose=spdx.PackagePurpose.CONTAINER,
        source_info=f"image ID sha256:{content.digest}",
    )
    about = spdx.CreationInfo(
        "SPDX-2.3",
        _DOCUMENT,
        f"{title}-{content.version}",
        f"https://tfjob-controller.invalid/sbom/{title}/{content.digest}",
        [spdx.Actor(spdx.ActorType.TOOL, f"{_PROJECT}-supplychain")],
        created,
    )
    relations = [spdx.Relationship(_DOCUMENT, spdx.RelationshipType.DESCRIBES, _IMAGE)]
    relations += [spdx.Relationship(_IMAGE, spdx.RelationshipType.CONTAINS, package.spdx_id) for package in packages]
    return spdx.Document(about, [image, *packages], relationships=relations)


def _package(package: Package) -> spdx.Package:
    kind = package.ecosystem.partition(":")[0]
    # Debian installs a package for two architectures under one name.
    identity = re.sub(r"[^A-Za-z0-9.-]", "-", f"{kind}-{package.name}-{package.architecture}".rstrip("-"))
    return spdx.Package(
        f"SPDXRef-{identity}",
        package.name,
        spdx.SpdxNoAssertion(),
        version=package.version,
        files_analyzed=False,
        license_declared=_licence(package.licence),
        external_references=[
            spdx.ExternalPackageRef(spdx.ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", package_url(package))
        ],
    )


def package_url(package: Package) -> str:
    """Returns the package's name for all tools that compare it with advisories (purl)."""
    version = package.version.replace(":", "%3A").replace("+", "%2B").replace("~", "%7E")
    if package.ecosystem == PYPI:
        return f"pkg:pypi/{canonicalize_name(package.name)}@{version}"
    system, _, release = package.ecosystem.lower().partition(":")
    name = package.name.replace("+", "%2B")
    return f"pkg:deb/{system}/{name}@{version}?arch={package.architecture}&distro={system}-{release}"


def _licence(text: str) -> object:
    """Returns a licence expression; free texts say nothing that SPDX knows."""
    if not text:
        return spdx.SpdxNoAssertion()
    try:
        return spdx_licensing.parse(text, validate=True)
    except ExpressionError:
        return spdx.SpdxNoAssertion()


def unlocked(content: Content, folder: Path) -> list[str]:
    """Returns a line for each Python package of the image that stands in no lock of the images in that version."""
    pins = {(pin.name, pin.version) for name in lock.SHIPPED for pin in lock.read(folder / f"{name}.txt")[0]}
    return [
        f"{content.title}: {package.name}=={package.version}: stands in no lock: build the image from this tree"
        for package in content.of(PYPI)
        if (canonicalize_name(package.name), package.version) not in pins
        and package.name not in {_PROJECT, *_OF_THE_BASE}
    ]


def write(content: Content, folder: Path, created: datetime.datetime) -> Path:
    """Validates the document and writes it to the folder, as TITLE-VERSION.spdx.json."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{content.title or 'image'}-{content.version or content.digest[:12]}.spdx.json"
    json_writer.write_document_to_file(document(content, created), str(path))
    return path


def main(words: Sequence[str]) -> int:
    """Runs the command and returns its exit code."""
    if len(words) < 2:
        print("usage: python -m supplychain.sbom FOLDER IMAGE.tar…", file=sys.stderr)
        return 2
    problems: list[str] = []
    # As in the image itself: nothing depends on when it was built.
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "1767225600"))
    created = datetime.datetime.fromtimestamp(epoch, datetime.UTC).replace(tzinfo=None)
    try:
        for image in words[1:]:
            content = imagecontent.read(Path(image))
            problems += unlocked(content, LOCKS)
            print(f"{write(content, Path(words[0]), created)}: {_counts(content)}")
    except imagecontent.ImageError as error:
        print(error, file=sys.stderr)
        return 1
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def _counts(content: Content) -> str:
    return f"{len(content.of('Debian'))} packages of Debian, {len(content.of(PYPI))} of Python"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
