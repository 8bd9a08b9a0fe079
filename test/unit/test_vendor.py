"""The dashboard's browser libraries are those that hack/vendor/packages.json pins, and nothing else is beside them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from vendor import __main__ as vendor


def pinned() -> dict[str, str]:
    """The hash of each file."""
    packages = json.loads(vendor.PACKAGES.read_text())
    return {name: digest for package in packages.values() for name, digest in package["sha256"].items()}


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_files_are_those_that_are_pinned() -> None:
    assert {path.name: digest_of(path) for path in vendor.TARGET.iterdir()} == pinned()


def test_every_library_has_its_licence() -> None:
    for name, package in json.loads(vendor.PACKAGES.read_text()).items():
        assert set(package["sha256"]) == {*package["files"].values(), f"{name}.LICENSE"}


def test_the_integrity_is_written_as_npm_writes_it() -> None:
    known = "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg=="
    assert vendor.integrity_of(b"") == known
