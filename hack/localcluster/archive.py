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
from typing import Any

from localcluster.errors import LocalClusterError
from localcluster.shell import run

# Any fixed time serves; some file systems and zip tools reject the epoch itself. 2026-01-01.
TIME_SECONDS = 1767225600
_CREATED = "2026-01-01T00:00:00Z"
_PACK_SECONDS = 1800.0
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


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
        fields = {
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.command),
            "Env": [f"{name}={value}" for name, value in (self.environment or {}).items()],
            "User": self.user,
        }
        return {key: value for key, value in fields.items() if value}


def pack(folder: Path, target: Path) -> Layer:
    """Returns a layer of all files in `folder`. Needs root for files of other users. Raises LocalClusterError."""
    how = ["--sort=name", "--numeric-owner", f"--mtime=@{TIME_SECONDS}", "--format=gnu"]
    run("tar", "--create", *how, "--file", target, "--directory", folder, ".", timeout_seconds=_PACK_SECONDS)
    with target.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return Layer(target, digest, target.stat().st_size)


def unpack(layer: Layer, target: Path) -> None:
    """Extracts the layer's files to `target`. Needs root. Raises LocalClusterError."""
    argv = ["tar", "--extract", "--numeric-owner", "--preserve-permissions", "--directory", str(target)]
    with layer.path.open("rb", buffering=0) as content:
        content.seek(layer.offset)  # tar reads from there to the end of the layer, which a tar marks.
        done = subprocess.run(argv, stdin=content, check=False)
    if done.returncode != 0:
        raise LocalClusterError(f"tar could not unpack {layer.path}: exit code {done.returncode}")


def layers(image: Path) -> list[Layer]:
    """Returns the layers of an image that was written here, lowest first, without copying them."""
    with tarfile.open(image) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json") or io.BytesIO())
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
            for file, content in (("manifest.json", json.dumps(manifest).encode()), (name, configuration)):
                archive.addfile(_entry(file, len(content)), io.BytesIO(content))
            for layer in stack:
                with layer.path.open("rb") as files:
                    files.seek(layer.offset)
                    archive.addfile(_entry(f"{layer.digest}.tar", layer.size), files)
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


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, TIME_SECONDS, 0o644
    return entry
