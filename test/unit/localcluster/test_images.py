"""The rules of how images are named, packed and built; the real ones are built by test/e2e."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from localcluster import archive, images
from localcluster.archive import Layer, Settings
from localcluster.errors import LocalClusterError
from localcluster.report import Report, silent


def fill(content: str) -> images.Recipe:
    """A recipe whose layer is one file with this content."""

    def build(root: Path, parent: Path | None, report: Report) -> None:
        (root / "file").write_text(content)

    return images.Recipe(content.encode, build, Settings(command=("sh",)))


VERSIONED = replace(fill("low"), version=lambda: "v1.2.3")


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, images.Recipe]:
    """Two images of our own, one on top of the other, in a cache of our own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = {"localhost/low": fill("low"), "localhost/high": replace(fill("high"), parent="localhost/low")}
    monkeypatch.setattr(images, "RECIPES", own)
    return own


def files(image: Path) -> list[dict[str, str]]:
    """The files of each layer with their content, from the lowest on."""
    found = []
    for layer in archive.layers(image):
        with image.open("rb") as whole:
            whole.seek(layer.offset)
            content = io.BytesIO(whole.read(layer.size))
        with tarfile.open(fileobj=content) as tar:
            members = [member for member in tar if member.isfile()]
            found.append({member.name: tar.extractfile(member).read().decode() for member in members})  # type: ignore[union-attr]  # they are files
    return found


def test_an_image_has_its_parents_layers_below_its_own(recipes: dict[str, images.Recipe]) -> None:
    assert files(images.ensure("localhost/high", silent)) == [{"./file": "low"}, {"./file": "high"}]


def test_an_image_is_built_once(recipes: dict[str, images.Recipe]) -> None:
    said: list[str] = []
    first = images.ensure("localhost/low", said.append)
    spoken = len(said)
    assert images.ensure("localhost/low:latest", said.append) == first
    assert len(said) == spoken


def test_progress_says_what_was_built_how_big_and_where_it_is(recipes: dict[str, images.Recipe]) -> None:
    said: list[str] = []
    tar = images.ensure("localhost/low", said.append)
    assert said[0] == "building image localhost/low"
    assert said[-1].startswith("built image localhost/low: ")
    assert " MB in " in said[-1]
    assert said[-1].endswith(str(tar))


@pytest.mark.parametrize(
    ("name", "change", "same"),
    [
        pytest.param("localhost/low", {}, True, id="nothing changed"),
        pytest.param("localhost/low", {"localhost/low": fill("other")}, False, id="its own inputs"),
        pytest.param("localhost/low", {"localhost/low": VERSIONED}, False, id="its version"),
        pytest.param("localhost/high", {"localhost/low": fill("other")}, False, id="its parent's inputs"),
        pytest.param("localhost/low", {"localhost/high": fill("other")}, True, id="what stands on it"),
    ],
)
def test_the_key_changes_with_all_that_goes_into_an_image(
    recipes: dict[str, images.Recipe], name: str, change: dict[str, images.Recipe], same: bool
) -> None:
    before = images.key(name)
    recipes.update(change)
    assert (images.key(name) == before) is same


def test_a_build_that_fails_leaves_nothing_in_the_cache(recipes: dict[str, images.Recipe]) -> None:
    def build(root: Path, parent: Path | None, report: Report) -> None:
        (root / "half").write_text("done")
        raise LocalClusterError("no network")

    recipes["localhost/low"] = replace(recipes["localhost/low"], build=build)
    with pytest.raises(LocalClusterError, match="no network"):
        images.ensure("localhost/low", silent)
    assert [path.name for path in images.folder().iterdir()] == ["lock"]


def test_what_a_killed_build_left_is_swept_away_by_the_next(recipes: dict[str, images.Recipe]) -> None:
    left = images.folder() / ".build-killed"
    left.mkdir(parents=True)
    images.ensure("localhost/low", silent)
    assert not left.exists()


def test_a_few_versions_of_an_image_are_kept_and_those_of_others_are_not_counted(
    recipes: dict[str, images.Recipe],
) -> None:
    recipes["localhost/low-also"] = fill("also")
    kept = [images.ensure("localhost/low-also", silent)]
    for number in range(5):
        recipes["localhost/low"] = fill(str(number))
        kept.append(images.ensure("localhost/low", silent))
    assert sorted(images.folder().glob("*.tar")) == sorted([kept[0], *kept[-3:]])


def test_an_image_without_a_recipe_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(
        LocalClusterError, match="no recipe for image 'localhost/nothing'; known images are localhost/pause"
    ):
        images.ensure("localhost/nothing", silent)


def test_an_image_of_a_version_has_it_as_a_tag_besides_latest(recipes: dict[str, images.Recipe]) -> None:
    recipes["localhost/low"] = VERSIONED
    names = ["localhost/low:latest", "localhost/low:v1.2.3"]
    assert images.tagged("localhost/low") == names
    assert [images.plain(name) for name in names] == ["localhost/low"] * 2
    with tarfile.open(images.ensure("localhost/low:v1.2.3", silent)) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]  # it is a file
    assert manifest["RepoTags"] == names


def test_a_tag_that_an_image_does_not_have_is_refused(recipes: dict[str, images.Recipe]) -> None:
    with pytest.raises(LocalClusterError, match="no recipe for image 'localhost/low:v2'"):
        images.plain("localhost/low:v2")


def test_the_same_files_give_the_same_bytes_whenever_they_were_written(tmp_path: Path) -> None:
    layers = []
    for number in (1, 2):
        root = tmp_path / f"root{number}"
        (root / "b").mkdir(parents=True)
        for name in ("z", "a") if number == 1 else ("a", "z"):
            (root / "b" / name).write_text("x")
        layers.append(archive.pack(root, tmp_path / f"{number}.tar"))
    assert layers[0].digest == layers[1].digest


def test_an_image_says_what_docker_load_needs(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    layer = archive.pack(root, tmp_path / "layer.tar")
    target = tmp_path / "image.tar"
    archive.write(target, ["localhost/x:latest"], [layer], Settings(("run",), ("/x",), {"A": "b"}, "7:7"))
    with tarfile.open(target) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]  # it is a file
        configuration = json.load(tar.extractfile(manifest["Config"]))  # type: ignore[arg-type]  # it is a file
    assert manifest["RepoTags"] == ["localhost/x:latest"]
    assert configuration["rootfs"]["diff_ids"] == [f"sha256:{layer.digest}"]
    assert configuration["config"] == {"Entrypoint": ["/x"], "Cmd": ["run"], "Env": ["A=b"], "User": "7:7"}
    assert archive.layers(target) == [Layer(target, layer.digest, layer.size, archive.layers(target)[0].offset)]
