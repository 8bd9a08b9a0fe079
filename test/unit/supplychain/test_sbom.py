"""What is read from an image, and the bill of materials that is written of it."""

from __future__ import annotations

import datetime
import io
import json
import tarfile
from pathlib import Path

import pytest
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from supplychain import imagecontent, sbom

SITE = "opt/tfjob-controller/lib/python3.13/site-packages"
STATUS = """\
Package: libssl3t64
Status: install ok installed
Architecture: amd64
Source: openssl
Version: 3.5.4-1

Package: libc++1
Status: install ok installed
Architecture: amd64
Source: llvm (1:19.0-1)
Version: 1:19.0-1+b1

Package: gone
Status: deinstall ok config-files
Version: 1
"""
DEBIAN = {"var/lib/dpkg/status": STATUS, "etc/os-release": 'ID=debian\nVERSION_ID="13"\nNAME="Debian GNU/Linux"\n'}
MIT = "Metadata-Version: 2.4\nName: Some.Name\nVersion: 1.0\nLicense-Expression: MIT\n\nText.\n"
UNSAID = "Metadata-Version: 2.1\nName: other\nVersion: 2\nLicense: ask the author\n"
PYTHON = {f"{SITE}/some_name-1.0.dist-info/METADATA": MIT, f"{SITE}/other-2.dist-info/METADATA": UNSAID}
TITLED = {"org.opencontainers.image.title": "tfjob-controller", "org.opencontainers.image.version": "0.1.0"}
CREATED = datetime.datetime(2026, 1, 1)


def image(folder: Path, *layers: dict[str, str]) -> Path:
    path = folder / "image.tar"
    with tarfile.open(path, "w") as archive:
        names = [f"{number}/layer.tar" for number in range(len(layers))]
        manifest = [{"Config": "abc.json", "RepoTags": [], "Layers": names}]
        files = {"manifest.json": json.dumps(manifest), "abc.json": json.dumps({"config": {"Labels": TITLED}})}
        packed = {name: tar(layer) for name, layer in zip(names, layers, strict=True)}
        add(archive, {name: text.encode() for name, text in files.items()} | packed)
    return path


def tar(files: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        add(archive, {f"./{name}": text.encode() for name, text in files.items()})
    return content.getvalue()


def add(archive: tarfile.TarFile, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))


def test_the_packages_of_an_image_are_those_that_are_installed(tmp_path: Path) -> None:
    content = imagecontent.read(image(tmp_path, DEBIAN, PYTHON))
    assert (content.title, content.version, content.digest) == ("tfjob-controller", "0.1.0", "abc")
    assert [(package.ecosystem, package.name, package.version) for package in content.packages] == [
        ("Debian:13", "libssl3t64", "3.5.4-1"),
        ("Debian:13", "libc++1", "1:19.0-1+b1"),
        ("PyPI", "other", "2"),
        ("PyPI", "Some.Name", "1.0"),
    ]


def test_a_package_that_an_upper_layer_removes_is_not_in_the_image(tmp_path: Path) -> None:
    content = imagecontent.read(image(tmp_path, DEBIAN, PYTHON, {f"{SITE}/.wh.other-2.dist-info": ""}))
    assert [package.name for package in content.of("PyPI")] == ["Some.Name"]


@pytest.mark.parametrize("layers", [(), ({"bin/sh": "x"},)], ids=["no layers", "no packages"])
def test_an_image_without_packages_is_an_error(layers: tuple[dict[str, str], ...], tmp_path: Path) -> None:
    with pytest.raises(imagecontent.ImageError, match="neither Debian's nor Python's"):
        imagecontent.read(image(tmp_path, *layers))


def test_a_file_that_is_no_image_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x" * 2000)
    with pytest.raises(imagecontent.ImageError, match="is no image"):
        imagecontent.read(tmp_path / "text")


def test_the_bill_of_materials_is_valid_spdx_and_names_every_package(tmp_path: Path) -> None:
    path = sbom.write(imagecontent.read(image(tmp_path, DEBIAN, PYTHON)), tmp_path / "sbom", CREATED)
    assert path.name == "tfjob-controller-0.1.0.spdx.json"
    document = parse_file(str(path))
    assert validate_full_spdx_document(document) == []
    about = {package.name: package for package in document.packages}
    assert [*about] == ["tfjob-controller", "libssl3t64", "libc++1", "other", "Some.Name"]
    assert str(about["Some.Name"].license_declared) == "MIT"
    assert str(about["other"].license_declared) == "NOASSERTION"
    assert [reference.locator for package in document.packages for reference in package.external_references] == [
        "pkg:deb/debian/libssl3t64@3.5.4-1?arch=amd64&distro=debian-13",
        "pkg:deb/debian/libc%2B%2B1@1%3A19.0-1%2Bb1?arch=amd64&distro=debian-13",
        "pkg:pypi/other@2",
        "pkg:pypi/some-name@1.0",
    ]


def test_a_package_that_stands_in_no_lock_is_named(tmp_path: Path) -> None:
    hashed = f"--hash=sha256:{'0' * 64}"
    (tmp_path / "runtime.txt").write_text(f"some-name==1.0 {hashed}")
    (tmp_path / "initializer.txt").write_text(f"other==3 {hashed}")
    (line,) = sbom.unlocked(imagecontent.read(image(tmp_path, DEBIAN, PYTHON)), tmp_path)
    assert line.startswith("tfjob-controller: other==2: stands in no lock")


def test_the_command_prints_the_paths_and_the_numbers_of_packages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sbom, "LOCKS", tmp_path)
    hashed = f"--hash=sha256:{'0' * 64}"
    (tmp_path / "runtime.txt").write_text(f"some-name==1.0 {hashed}\nother==2 {hashed}")
    (tmp_path / "initializer.txt").write_text("")
    words = [str(tmp_path / "sbom"), str(image(tmp_path, DEBIAN, PYTHON))]
    assert sbom.main(words) == 0
    assert "2 packages of Debian, 2 of Python" in capsys.readouterr().out
    assert sbom.main(words[:1]) == 2
