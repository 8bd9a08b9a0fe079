"""Writes container images as `docker-archive` tars, which `docker save` writes and every tool can load.

An image is a stack of layers (tars of files), a JSON configuration, and a manifest that names both. Layers are
identified by the SHA-256 of their bytes, so the same content must give the same bytes: entries are sorted, owned by
root, and carry one fixed time.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from localcluster.errors import LocalClusterError

# Any fixed time serves; some file systems and zip tools reject the epoch itself. 2026-01-01.
TIME_SECONDS = 1767225600
_CREATED = "2026-01-01T00:00:00Z"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Layer:
    """A tar of files, which may lie inside another tar: `size` bytes from `offset` of `path`."""

    path: Path
    digest: str
    size: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings with which a container of the image starts."""

    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None
    user: str = ""

    def document(self) -> dict[str, Any]:
        found = {
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.command),
            "Env": [f"{name}={value}" for name, value in (self.environment or {}).items()],
            "User": self.user,
        }
        return {key: value for key, value in found.items() if value}


def pack(folder: Path, target: Path) -> Layer:
    """Returns a layer of all files in `folder`. Needs root for files of other users. Raises LocalClusterError."""
    argv = ["tar", "--create", "--sort=name", "--numeric-owner", f"--mtime=@{TIME_SECONDS}", "--format=gnu"]
    with subprocess.Popen([*argv, "--directory", str(folder), "."], stdout=subprocess.PIPE) as tar:
        assert tar.stdout is not None  # noqa: S101 - it is a pipe
        with target.open("wb") as output:
            digest = _copy(tar.stdout, output)
    if tar.returncode != 0:
        raise LocalClusterError(f"tar could not pack {folder}: exit code {tar.returncode}")
    return Layer(target, digest.hexdigest(), target.stat().st_size)


def unpack(layer: Layer, target: Path) -> None:
    """Extracts the layer's files to `target`. Needs root. Raises LocalClusterError."""
    argv = ["tar", "--extract", "--numeric-owner", "--preserve-permissions", "--directory", str(target)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as tar, layer.path.open("rb") as content:
        assert tar.stdin is not None  # noqa: S101 - it is a pipe
        content.seek(layer.offset)
        left = layer.size
        while left > 0 and (block := content.read(min(_BLOCK, left))):
            tar.stdin.write(block)
            left -= len(block)
    if tar.returncode != 0:
        raise LocalClusterError(f"tar could not unpack {layer.path}: exit code {tar.returncode}")


def layers(image: Path) -> list[Layer]:
    """Returns the layers of an image that was written here, lowest first, without copying them."""
    with tarfile.open(image) as archive:
        (manifest,) = json.loads(_read(archive, "manifest.json"))
        members = [archive.getmember(name) for name in manifest["Layers"]]
    return [Layer(image, Path(member.name).stem, member.size, member.offset_data) for member in members]


def write(target: Path, tags: Sequence[str], stack: Sequence[Layer], settings: Settings) -> None:
    """Writes the image atomically: `target` is either complete or does not exist."""
    configuration = _configuration(stack, settings)
    name = f"{hashlib.sha256(configuration).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": list(tags), "Layers": [f"{layer.digest}.tar" for layer in stack]}]
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with tarfile.open(part, "w", format=tarfile.GNU_FORMAT) as archive:
            _add(archive, "manifest.json", json.dumps(manifest).encode())
            _add(archive, name, configuration)
            for layer in stack:
                _add_layer(archive, layer)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _configuration(stack: Sequence[Layer], settings: Settings) -> bytes:
    document = {
        "architecture": _ARCHITECTURES.get(os.uname().machine, os.uname().machine),
        "os": "linux",
        "created": _CREATED,
        "config": settings.document(),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in stack]},
        "history": [{"created": _CREATED} for _ in stack],
    }
    return json.dumps(document, sort_keys=True).encode()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    archive.addfile(_entry(name, len(content)), io.BytesIO(content))


def _add_layer(archive: tarfile.TarFile, layer: Layer) -> None:
    with layer.path.open("rb") as content:
        content.seek(layer.offset)
        archive.addfile(_entry(f"{layer.digest}.tar", layer.size), content)


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, TIME_SECONDS, 0o644
    return entry


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    assert member is not None  # noqa: S101 - a file, by its name
    return member.read()


def _copy(source: IO[bytes], target: IO[bytes]) -> Any:
    """Copies all bytes and returns their SHA-256."""
    digest = hashlib.sha256()
    while block := source.read(_BLOCK):
        digest.update(block)
        target.write(block)
    return digest
