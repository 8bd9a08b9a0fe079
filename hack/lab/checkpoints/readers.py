"""How the auditor reads the storages: with its own code, which shares nothing with the code under test.

Names are relative to the URI of a job, as in docs/checkpoints.md: `manifests/…` and `data/…`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from lab.checkpoints.bucket import BUCKET

# The files of each job with their sizes.
Listing = Mapping[str, Mapping[str, int]]


class Reader(Protocol):
    """One storage with folders of jobs. Thread-safe."""

    def listing(self, job: str = "") -> Listing:
        """All files of one job, or of all; a job without files may be missing."""

    def read(self, job: str, name: str) -> bytes | None:
        """The content of a file; None if there is none."""


class BucketReader:
    """Implements `Reader` for the jobs in a bucket."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def listing(self, job: str = "") -> Listing:
        found: dict[str, dict[str, int]] = defaultdict(dict)
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{job}/" if job else "")
        for page in pages:
            for each in page.get("Contents", ()):
                owner, _, name = each["Key"].partition("/")
                found[owner][name] = each["Size"]
        return found

    def read(self, job: str, name: str) -> bytes | None:
        try:
            content: bytes = self._client.get_object(Bucket=BUCKET, Key=f"{job}/{name}")["Body"].read()
        except self._client.exceptions.NoSuchKey:
            return None
        return content


class FolderReader:
    """Implements `Reader` for the folders of jobs in a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def listing(self, job: str = "") -> Listing:
        jobs = [job] if job else sorted(os.listdir(self._root))
        # The manifests of a job come first: a checkpoint that is removed loses its manifest before its files.
        return {each: {**self._below(each, "manifests"), **self._below(each, "data")} for each in jobs}

    def read(self, job: str, name: str) -> bytes | None:
        try:
            return (self._root / job / name).read_bytes()
        except FileNotFoundError:
            return None

    def _below(self, job: str, part: str) -> dict[str, int]:
        found = {}
        for folder, _, names in os.walk(self._root / job / part):
            for name in names:
                path = Path(folder, name)
                try:
                    found[path.relative_to(self._root / job).as_posix()] = path.stat().st_size
                except FileNotFoundError:
                    continue
        return found
