"""Fetches the browser libraries of the dashboard: `python -m vendor` writes the pinned versions into the source tree.

`packages.json` names each npm package with its version, its integrity as npm publishes it, and the files that are
taken, with their hashes, which a test compares with the source tree. They come from the registry that npm is configured
for. A package whose archive differs from its integrity is refused. Every package's licence is written beside its files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = Path(__file__).with_name("packages.json")
TARGET = ROOT / "src/tfjob_controller/dashboard/static/vendor"


def main() -> int:
    """Fetch all packages; returns the exit code."""
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, package in json.loads(PACKAGES.read_text()).items():
        print(f"fetching {name} {package['version']}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            archive = _fetch(f"{name}@{package['version']}", Path(folder))
            if (found := integrity_of(archive.read_bytes())) != package["integrity"]:
                print(f"{name} {package['version']} has integrity {found}, not that of packages.json", file=sys.stderr)
                return 1
            _extract(archive, package["files"] | {"LICENSE": f"{name}.LICENSE"})
    return 0


def integrity_of(content: bytes) -> str:
    """The value as npm writes it (Subresource Integrity)."""
    return f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"


def _fetch(spec: str, folder: Path) -> Path:
    subprocess.run(["npm", "pack", "--silent", spec], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (archive,) = folder.glob("*.tgz")
    return archive


def _extract(archive: Path, files: dict[str, str]) -> None:
    with tarfile.open(archive) as content:
        for source, target in files.items():
            member = content.extractfile(f"package/{source}")
            assert member is not None  # noqa: S101 -- extractfile returns None for folders alone
            (TARGET / target).write_bytes(member.read())


if __name__ == "__main__":
    sys.exit(main())
