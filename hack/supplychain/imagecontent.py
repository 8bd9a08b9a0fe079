"""The packages in an image, from the files that package tools leave in it: dpkg's status, and Python's metadata.

An image is a tar as `docker save`, `buildah push … docker-archive:` and `make image` write it.
"""

from __future__ import annotations

import json
import re
import shlex
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

from debian_inspector.debcon import get_paragraphs_data

from supplychain import licences

PYPI = "PyPI"
_STATUS = "var/lib/dpkg/status"
_RELEASE = ("etc/os-release", "usr/lib/os-release")
_METADATA = re.compile(r"(?:site|dist)-packages/[^/]+\.dist-info/METADATA$")
_REMOVED = ".wh."


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package. `ecosystem` is "PyPI", or Debian's with its release: "Debian:13"."""

    ecosystem: str
    name: str
    version: str
    licence: str = ""
    architecture: str = ""


@dataclass(frozen=True, slots=True)
class Content:
    """`digest` is that of the image's configuration, which container tools call its ID."""

    digest: str
    title: str
    version: str
    packages: tuple[Package, ...]

    def of(self, ecosystem: str) -> list[Package]:
        """Returns the packages of an ecosystem, given without its release: "PyPI" or "Debian"."""
        return [package for package in self.packages if package.ecosystem.partition(":")[0] == ecosystem]


class ImageError(Exception):
    """The file is no image, or one without packages; the message is one line with the path."""


def read(path: Path) -> Content:
    """Returns what is installed in the image. Raises ImageError."""
    try:
        with tarfile.open(path) as archive:
            (manifest,) = json.loads(_member(archive, "manifest.json"))
            configuration = json.loads(_member(archive, manifest["Config"]))
            files: dict[str, bytes] = {}
            for name in manifest["Layers"]:
                _add_layer(archive, name, files)
    except (OSError, KeyError, ValueError, tarfile.TarError) as error:
        raise ImageError(f"{path}: is no image of `docker save` or `make image`: {error}") from None
    labels = configuration["config"].get("Labels") or {}
    packages = (*_debian(files), *_python(files))
    if not packages:
        raise ImageError(f"{path}: neither Debian's nor Python's packages are in this image")
    titled = "org.opencontainers.image"
    digest = Path(manifest["Config"]).stem
    return Content(digest, labels.get(f"{titled}.title", ""), labels.get(f"{titled}.version", ""), packages)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    content = archive.extractfile(name)
    if content is None:
        raise KeyError(name)
    return content.read()


def _add_layer(archive: tarfile.TarFile, name: str, files: dict[str, bytes]) -> None:
    """Adds the files of interest, and forgets those that the layer removes."""
    content = archive.extractfile(name)
    with tarfile.open(fileobj=content, mode="r|*") as layer:
        for entry in layer:
            path = entry.name.removeprefix("./")
            folder, _, last = path.rpartition("/")
            if last.startswith(_REMOVED):
                gone = f"{folder}/{last.removeprefix(_REMOVED)}"
                for known in [known for known in files if known == gone or known.startswith(f"{gone}/")]:
                    del files[known]
            elif entry.isfile() and (path == _STATUS or path in _RELEASE or _METADATA.search(path)):
                found = layer.extractfile(entry)
                files[path] = found.read() if found else b""


def _debian(files: dict[str, bytes]) -> Iterator[Package]:
    release = next((files[name].decode() for name in _RELEASE if name in files), "")
    words = dict(word.partition("=")[::2] for word in shlex.split(release))
    ecosystem = f"{words.get('ID', 'debian').capitalize()}:{words.get('VERSION_ID', '')}"
    for fields in get_paragraphs_data(files.get(_STATUS, b"").decode()):
        if "installed" in fields.get("status", "").split():
            architecture = fields.get("architecture", "")
            yield Package(ecosystem, fields["package"], fields["version"], architecture=architecture)


def _python(files: dict[str, bytes]) -> Iterator[Package]:
    for name in sorted(files):
        if _METADATA.search(name):
            said: metadata.PackageMetadata = message_from_bytes(files[name])  # type: ignore[assignment]  # as in importlib
            yield Package(PYPI, said["Name"], said["Version"], licences.said_by(said))
