"""What the layers of packages are made of, as far as that needs no Debian; test/e2e builds and runs the images."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcluster import debian, imagelayers
from localcluster.errors import LocalClusterError

# An apt-get that fails as often as the file `fails` has lines, and writes down what it was asked for.
APT = """\
#!/bin/sh
echo "$@" >> {folder}/asked
case "$*" in *update*) exit 0;; esac
[ -s {folder}/fails ] || exit 0
sed -i 1d {folder}/fails
echo no such package >&2
exit 100
"""


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `asked`, one line per call; the tool itself is first on the path."""
    tool = tmp_path / "bin/apt-get"
    tool.parent.mkdir()
    tool.write_text(APT.format(folder=tmp_path))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    return tmp_path


def asked(apt: Path) -> list[str]:
    return ["update" if "update" in line else "install" for line in (apt / "asked").read_text().splitlines()]


def test_packages_are_fetched_for_the_image_and_not_for_this_machine(apt: Path) -> None:
    debian.fetch(["python3-torch"], Path("/image/status"), apt / "cache")
    (words,) = (apt / "asked").read_text().splitlines()
    assert "Dir::State::status=/image/status" in words
    assert f"Dir::Cache={apt}/cache" in words
    assert "--download-only" in words.split()
    assert (apt / "cache/archives/partial").is_dir()


def test_lists_that_are_old_are_brought_up_to_date_once(apt: Path) -> None:
    (apt / "fails").write_text("once\n")
    debian.fetch(["python3-torch"], Path("/image/status"), apt / "cache")
    assert asked(apt) == ["install", "update", "install"]


def test_a_package_that_is_not_there_is_reported_with_apts_message(apt: Path) -> None:
    (apt / "fails").write_text("once\ntwice\n")
    with pytest.raises(LocalClusterError, match="no such package"):
        debian.fetch(["python3-torch"], Path("/image/status"), apt / "cache")


def test_waste_is_removed_but_never_what_a_link_points_to(tmp_path: Path) -> None:
    for name in ("share/doc/a/b", "share/keep/c", "lib/x86/dri/driver.so"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("x")
    (tmp_path / "share/doc/link").symlink_to("../keep")
    imagelayers.remove(tmp_path, ["share/doc/*", "lib/*/dri/*", "nothing/*"])
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["share/keep/c"]


def test_packages_need_a_system_below_them(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="needs a complete base image"):
        imagelayers.unpack(None, tmp_path)
