"""The images that buildah builds from the Dockerfile: their content, and that they are the same from any checkout."""

from __future__ import annotations

import configparser
import gzip
import json
import os
import re
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from localcluster import archive, binaries, dockerimage, images
from localcluster.report import silent
from localcluster.shell import CommandError
from supplychain import lock

pytestmark = [
    pytest.mark.cluster,
    # Without a cache all of the locked dependencies are installed and compiled, on a machine that may be busy.
]

REPOSITORY = Path(__file__).resolve().parents[2]
HOME = Path("opt/tfjob-controller")
BUILDERS = {"cc", "gcc", "ld", "make", "pip", "pip3", "setuptools", "wheel", "uv", "conftest.py", "tests"}
LARGEST_PULL_BYTES = 120e6
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="images are built and unpacked as root on Linux")


def version() -> str:
    settings = configparser.ConfigParser()
    settings.read(REPOSITORY / "setup.cfg")
    return settings["metadata"]["version"]


def settings_of(image: Path) -> dict[str, Any]:
    """Returns the part of the image's configuration that a container is started with."""
    with tarfile.open(image) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]  # it is a file
        configuration = json.load(tar.extractfile(manifest["Config"]))  # type: ignore[arg-type]  # it is a file
    found: dict[str, Any] = configuration["config"]
    return found


@pytest.fixture(scope="module")
def controller() -> Path:
    return images.ensure(images.CONTROLLER, silent)


@needs_root
def test_the_image_carries_its_version_runs_as_nobody_and_knows_no_time_of_its_build(controller: Path) -> None:
    found = settings_of(controller)
    said = {key.removeprefix("org.opencontainers.image."): value for key, value in found["Labels"].items()}
    assert (said["title"], said["version"], said["licenses"]) == ("tfjob-controller", version(), "Apache-2.0")
    assert (found["User"], found["Entrypoint"], found["Cmd"]) == ("65532:65532", ["tfjob-controller"], ["run"])


@needs_root
def test_only_the_last_layer_changes_with_the_source(controller: Path) -> None:
    """Nodes and registries keep the others."""
    below = images.ensure(images.RECIPES[images.CONTROLLER].parent or "", silent)
    digests = [[layer.digest for layer in archive.layers(image)] for image in (controller, below)]
    assert digests[0][:-1] == digests[1]
    base = images.ensure("localhost/python", silent)
    assert [layer.digest for layer in archive.layers(base)] == digests[1][:-1]


@needs_root
def test_the_image_is_small_to_pull(controller: Path) -> None:
    """Base and own layers, each compressed, and less than by registries, which take more time for it."""
    compressed = 0
    for layer in archive.layers(controller):
        with layer.path.open("rb") as content:
            content.seek(layer.offset)
            compressed += len(gzip.compress(content.read(layer.size), compresslevel=1))
    assert compressed <= LARGEST_PULL_BYTES


@needs_root
def test_the_image_adds_one_folder_that_nobody_can_change_and_nothing_to_build_with(
    controller: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for layer in archive.layers(controller)[1:]:
        archive.unpack(layer, own)
    files = {path.relative_to(own): path.lstat() for path in own.rglob("*") if not path.is_dir()}
    assert [path for path in files if not path.is_relative_to(HOME)] == []
    assert [path for path, seen in files.items() if seen.st_uid or seen.st_gid] == []
    writable = [path for path, seen in files.items() if seen.st_mode & 0o022 and not stat.S_ISLNK(seen.st_mode)]
    assert writable == []
    assert {part for path in files for part in path.parts} & BUILDERS == set()
    compiled = {path for path in files if path.suffix == ".pyc"}
    sources = {path for path in files if path.suffix == ".py"}
    assert {path.parent.parent / f"{path.name.partition('.')[0]}.py" for path in compiled} == sources
    # PEP 552: bit 0 says that a hash stands there in the place of a time, bit 1 would have it compared.
    assert {(own / path).read_bytes()[4:8] for path in compiled} == {b"\x01\0\0\0"}


@needs_root
@pytest.mark.parametrize("name", [images.CONTROLLER, images.INITIALIZER])
def test_all_programs_start_in_the_image_with_its_own_user(name: str, tmp_path: Path) -> None:
    image = images.ensure(name, silent)
    root = tmp_path / "root"
    root.mkdir()
    for layer in archive.layers(image):
        archive.unpack(layer, root)
    for program in ("tfjob-controller", "kubectl-tfjob"):
        assert version() in output(root, image, program, "--version")
    for command in ("run", "extender", "simulate", "initialize", "export"):
        assert output(root, image, "tfjob-controller", command, "--help").startswith("usage: tfjob-controller ")


def output(root: Path, image: Path, *command: str) -> str:
    found = settings_of(image)
    user, _, group = found["User"].partition(":")
    rights = [f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
    argv = ["chroot", root, "setpriv", *rights, "env", "-i", *found["Env"], *command]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@needs_root
@pytest.mark.parametrize("name", [images.CONTROLLER, images.INITIALIZER])
def test_every_python_package_that_an_image_adds_is_in_its_locks(name: str, tmp_path: Path) -> None:
    for layer in archive.layers(images.ensure(name, silent))[1:]:
        archive.unpack(layer, tmp_path)
    installed = {path.name.removesuffix(".dist-info") for path in tmp_path.rglob("*.dist-info")}
    versions = {(re.sub("[-_.]+", "-", package).lower(), version) for package, _, version in map(_parted, installed)}
    locks = (REPOSITORY / "hack" / "requirements" / f"{part}.txt" for part in lock.SHIPPED)
    locked = {(pin.name, pin.version) for path in locks for pin in lock.read(path)[0]}
    assert {package for package, _ in versions} >= {"tfjob-controller", "kubernetes", "uvloop"}
    assert versions - locked == {("tfjob-controller", version())}


def _parted(name: str) -> tuple[str, str, str]:
    return name.rpartition("-")


@pytest.mark.long
@needs_root
def test_the_image_has_the_same_bytes_whatever_times_and_modes_the_checkout_has(
    controller: Path, tmp_path: Path
) -> None:
    """Built in a store of its own, so that nothing is taken from the first build."""
    target = tmp_path / "other" / "controller.tar"
    target.parent.mkdir()
    checkout = other_checkout(tmp_path / "checkout")
    base = images.ensure("localhost/python", silent)
    dockerimage.build("controller", base, target, "localhost/other:latest", silent, checkout)
    digests = [[layer.digest for layer in archive.layers(image)] for image in (controller, target)]
    assert digests[0] == digests[1]
    broken = checkout / "setup.cfg"
    broken.write_text(broken.read_text().replace(f"version = {version()}", "version = 0.0.1"))
    with pytest.raises(CommandError, match="exit code"):
        dockerimage.build("controller", base, target, "localhost/other:latest", silent, checkout)


def other_checkout(folder: Path) -> Path:
    """The same files by somebody with another umask, on another day, who has run them."""
    for name in ("Dockerfile", ".dockerignore"):
        folder.mkdir(exist_ok=True)
        shutil.copyfile(REPOSITORY / name, folder / name)
    for name in (*dockerimage.CONTEXT, *dockerimage.LOCKS):
        source = REPOSITORY / name
        for path in [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]:
            copy = folder / path.relative_to(REPOSITORY)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            copy.chmod(0o664)
            os.utime(copy, (1, 1))
    left = folder / "src/tfjob_controller/__pycache__/left.pyc"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"")
    return folder


def test_docker_s_own_linter_finds_nothing() -> None:
    """BuildKit's, as `docker build --check` runs it; hadolint is part of hack/verify."""
    linter = binaries.ensure("dockerfilelint")
    done = subprocess.run([linter, REPOSITORY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_linter_says_what_is_wrong_and_where(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM scratch\nENV TOKEN=$MISSING\nCMD run\n")
    done = subprocess.run([binaries.ensure("dockerfilelint"), bad], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    rules = {line.removeprefix(f"{bad}:").partition(": ")[0] for line in done.stdout.splitlines()}
    assert rules == {"2 UndefinedVar", "2 SecretsUsedInArgOrEnv", "3 JSONArgsRecommended"}
