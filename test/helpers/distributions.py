"""Distributions as pip installs them: modules and a folder of metadata."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path


def install(
    site: Path,
    name: str,
    modules: Mapping[str, str],
    entry_points: Mapping[str, Mapping[str, str]],
    version: str = "1.0",
) -> None:
    """Installs a distribution into the folder `site`, which is on sys.path: file name → text, group → name → object."""
    for file, text in modules.items():
        (site / file).write_text(text)
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    sections = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
        for group, entries in entry_points.items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(sections))
    importlib.invalidate_caches()
