"""The image of the Dockerfile, built from its steps without Docker: its content, and that it runs."""

from __future__ import annotations

import base64
import configparser
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from helpers import dockerbuild, dockerfile
from helpers.cluster import Cluster
from helpers.controller import Jobs
from helpers.dockerbuild import Builder, Image
from helpers.manifests import tfjob
from helpers.poll import eventually
from localcluster import binaries
from localcluster.crds import install_crds

pytestmark = [
    pytest.mark.cluster,
    # All of the locked dependencies are installed and compiled, on a machine that may be busy otherwise.
    pytest.mark.timeout(600),
]

REPOSITORY = Path(__file__).resolve().parents[2]
LOCKS = REPOSITORY / "hack" / "requirements"
HOME = Path("opt/tfjob-controller")
BUILDERS = {"cc", "gcc", "ld", "make", "pip", "pip3", "setuptools", "wheel", "uv", "conftest.py"}
ARGUMENTS = {"REVISION": "0123abc", "SOURCE": "https://example.com/source", "CREATED": "2026-01-01T00:00:00Z"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="builds in chroots: needs root on Linux")


@pytest.fixture
def base(tmp_path: Path) -> Image:
    return dockerbuild.base_image(tmp_path)


def fetched(folder: Path, *locks: str) -> Path:
    dockerbuild.fetch([LOCKS / lock for lock in locks], folder / "wheels")
    return folder / "wheels"


def version() -> str:
    settings = configparser.ConfigParser()
    settings.read(REPOSITORY / "setup.cfg")
    return settings["metadata"]["version"]


@pytest.mark.long
@needs_root
def test_the_wheel_has_the_same_bytes_whatever_times_and_modes_the_checkout_has(base: Image, tmp_path: Path) -> None:
    wheels = fetched(tmp_path, "build.txt")
    first = Builder(REPOSITORY, base, wheels, tmp_path / "first", {}).build("wheel")
    checkout = other_checkout(tmp_path / "checkout")
    second = Builder(checkout, base, wheels, tmp_path / "second", {}).build("wheel")
    (one,), (other,) = (list((image.layers[0] / "dist").iterdir()) for image in (first, second))
    assert one.name == other.name == f"tfjob_controller-{version()}-py3-none-any.whl"
    assert one.read_bytes() == other.read_bytes()


def other_checkout(folder: Path) -> Path:
    """The same files by somebody with another umask, on another day, who has run them."""
    for name in ("Dockerfile", ".dockerignore", "hack/requirements/build.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, folder / name)
    file = dockerfile.read(REPOSITORY / "Dockerfile")
    for step in file.stages["wheel"].of("COPY"):
        for source in step.words({})[:-1]:
            for path in dockerfile.context_files(REPOSITORY, source, []):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(REPOSITORY / path, folder / path)
                (folder / path).chmod(0o664)
                os.utime(folder / path, (1, 1))
    left = folder / "src/tfjob_controller/__pycache__/left.pyc"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"")
    return folder


@pytest.mark.long
@needs_root
def test_the_image_runs_all_programs_without_rights_and_holds_nothing_to_build_with(
    base: Image, tmp_path: Path, control_plane: Cluster, namespace: str
) -> None:
    if control_plane.plane is None:
        pytest.skip("the container reads the kubeconfig of the tests' own control plane: unset KUBECONFIG")
    wheels = fetched(tmp_path, "build.txt", "runtime.txt")
    builder = Builder(REPOSITORY, base, wheels, tmp_path / "stages", ARGUMENTS)
    image = builder.build("controller")
    check_labels(image)
    check_files(image, base)
    for program in ("tfjob-controller", "kubectl-tfjob"):
        assert version() in output(image, tmp_path, program, "--version")
    for command in ("run", "extender", "simulate", "initialize"):
        assert output(image, tmp_path, *image.entrypoint, command, "--help").startswith("usage: tfjob-controller ")
    assert output(image, tmp_path, "sh", "-c", "id -u; id -g; touch /opt/x 2>&1 || true") == (
        "65532\n65532\ntouch: cannot touch '/opt/x': Read-only file system\n"
    )
    check_work(image, tmp_path, control_plane, namespace)


def check_labels(image: Image) -> None:
    told = {key.removeprefix("org.opencontainers.image."): value for key, value in image.labels.items()}
    assert told.pop("description")
    assert told == {
        "title": "tfjob-controller",
        "licenses": "Apache-2.0",
        "version": version(),
        **{name.lower(): value for name, value in ARGUMENTS.items()},
    }


def check_files(image: Image, base: Image) -> None:
    """The last stage adds the environment alone; nobody but root can change it; all of it is compiled for good."""
    own, *below = image.layers
    assert tuple(below) == base.layers
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


def output(image: Image, scratch: Path, *command: str) -> str:
    with dockerbuild.container(image, scratch, *command) as running:
        told = running.communicate()[0]
    assert running.returncode == 0, told
    return told


def check_work(image: Image, scratch: Path, cluster: Cluster, namespace: str) -> None:
    """`run` looks after a job, and ends as it should when it is told to."""
    install_crds(cluster.api)
    shared = scratch / "shared"
    write_kubeconfig(cluster, shared)
    flags = ["--kubeconfig=/mnt/kubeconfig", f"--namespace={namespace}", "--metrics-bind-address=0"]
    command = [*image.entrypoint, *image.command, *flags, "--health-probe-bind-address=0"]
    jobs = Jobs(cluster.api, namespace)
    jobs.submit(tfjob())
    with dockerbuild.container(image, scratch, *command, shared=shared) as running:
        try:
            eventually(lambda: running.poll() is not None or len(jobs.children("jobs")) == 4, 60, 0.1)
            if running.poll() is None:
                os.kill(dockerbuild.first_process(running), signal.SIGTERM)
        except BaseException:
            running.kill()
            raise
        log = running.communicate(timeout=60)[0]
    assert running.returncode == 0, log
    assert '"event": "workers started"' in log


def write_kubeconfig(cluster: Cluster, folder: Path) -> None:
    """With its certificate in a file, as in a pod: there is nowhere to write one to."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    authority = base64.b64decode(config["clusters"][0]["cluster"].pop("certificate-authority-data"))
    config["clusters"][0]["cluster"]["certificate-authority"] = "/mnt/ca.crt"
    folder.mkdir()
    (folder / "ca.crt").write_bytes(authority)
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)


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
