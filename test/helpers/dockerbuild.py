"""Builds the stages of a Dockerfile without Docker: executes its RUN and COPY steps in chroots over overlays.

The base image is replaced by the nodes' minimal Debian with its Python, and pip. RUN steps have no network: the
packages that pip may install are downloaded before, from the index that this machine's own pip uses. Needs root on
Linux.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pip

from helpers import dockerfile
from helpers.dockerfile import Dockerfile, Stage, Step
from helpers.poll import eventually
from localcluster import archive, images
from localcluster.shell import run

# The mounts end with the last process.
_APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
WHEELS = "/mnt"


@dataclass(frozen=True, slots=True)
class Image:
    """A stage after its last step. `layers` are the folders of its files, the uppermost first."""

    layers: tuple[Path, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


def base_image(scratch: Path) -> Image:
    """Returns the replacement for python:slim."""
    system, extras = scratch / "system", scratch / "extras"
    system.mkdir(parents=True)
    for layer in archive.layers(images.ensure(images.BASE)):
        archive.unpack(layer, system)
    version = next(path.name for path in (system / "usr/lib").glob("python3.*"))
    (extras / "usr/local/bin").mkdir(parents=True)
    (extras / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    packages = extras / "usr/local/lib" / version / "dist-packages/pip"
    shutil.copytree(Path(pip.__file__).parent, packages, ignore=shutil.ignore_patterns("__pycache__"))
    return Image((extras, system), {"PATH": _PATH})


def fetch(locks: Sequence[Path], target: Path) -> None:
    """Downloads all packages of these lock files for the base image's Python (Debian 12 has 3.11)."""
    named = [word for lock in locks for word in ("-r", str(lock))]
    pip_download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    run(*pip_download, "--only-binary=:all:", "--python-version=3.11", "--dest", target, *named)


class Builder:
    """Builds each stage once, when it is first requested."""

    def __init__(
        self, repository: Path, base: Image, wheels: Path, scratch: Path, arguments: Mapping[str, str]
    ) -> None:
        self._repository, self._base, self._wheels, self._scratch = repository, base, wheels, scratch
        self._file: Dockerfile = dockerfile.read(repository / "Dockerfile")
        self._ignored = dockerfile.ignore_patterns(repository / ".dockerignore")
        self._arguments = {**self._file.arguments, **arguments}
        self._built: dict[str, Image] = {}

    def build(self, name: str) -> Image:
        """Returns the built stage. Raises CommandError with the last output of a step that failed."""
        if name not in self._file.stages:
            return self._base
        if name not in self._built:
            self._built[name] = self._make(self._file.stages[name])
        return self._built[name]

    def _make(self, stage: Stage) -> Image:
        below = self.build(stage.base)
        upper = self._scratch / stage.name / "upper"
        for folder in (upper, upper.with_name("work"), upper.with_name("merged")):
            folder.mkdir(parents=True)
        at = _Progress(dict(below.environment), dict(below.labels), below.user, below.entrypoint, below.command)
        for step in stage.steps:
            match step.keyword:
                case "RUN":
                    self._run(step.text, at, below, upper)
                case "COPY":
                    self._copy(step.words(at.variables), at.folder, upper)
                case _:
                    at.set(step, self._arguments)
        layers = (upper, *below.layers) if any(upper.iterdir()) else below.layers
        return Image(layers, at.environment, at.labels, at.user, at.entrypoint, at.command)

    def _run(self, command: str, at: _Progress, below: Image, upper: Path) -> None:
        merged = upper.with_name("merged")
        (upper / at.folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        offline = {"HOME": "/root", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        variables = {**at.variables, **offline, "PIP_ROOT_USER_ACTION": "ignore"}
        settings = [f"{name}={value}" for name, value in variables.items()]
        mount = _mount(below.layers, merged, upper) + f'mount --bind -o ro "{self._wheels}" "{merged}{WHEELS}"\n'
        script = mount + f'exec chroot "{merged}" env -i -C "{at.folder}" "$@"'
        run(*_APART, "--net", "sh", "-ec", script, "sh", *settings, "/bin/sh", "-c", command)

    def _copy(self, words: Sequence[str], folder: str, upper: Path) -> None:
        target = upper / words[-1].lstrip("/") if words[-1].startswith("/") else upper / folder.lstrip("/") / words[-1]
        if words[0].startswith("--from="):
            source = words[1].lstrip("/")
            for layer in reversed(self.build(words[0].removeprefix("--from=")).layers):
                if (layer / source).exists():
                    shutil.copytree(layer / source, target, symlinks=True, dirs_exist_ok=True)
            return
        for source in words[:-1]:
            for path in self.context(source):
                inside = path.relative_to(source) if path != Path(source) else Path(path.name)
                (target / inside).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self._repository / path, target / inside)

    def context(self, source: str) -> list[Path]:
        """Returns the file or folder that COPY reads. Raises FileNotFoundError where Docker's build fails."""
        found = dockerfile.context_files(self._repository, source, self._ignored)
        if not found:
            raise FileNotFoundError(f"COPY {source}: it is not there, or in .dockerignore")
        return found


@dataclass(slots=True)
class _Progress:
    """A stage while its steps are executed; ARGs apply to the rest of the stage."""

    environment: dict[str, str]
    labels: dict[str, str]
    user: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    folder: str = "/"
    arguments: dict[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        return {**self.arguments, **self.environment}

    def set(self, step: Step, given: Mapping[str, str]) -> None:
        """Applies a step that only sets metadata. Raises ValueError for an unknown instruction."""
        words = step.words(self.variables)
        match step.keyword:
            case "ARG":
                defaults = {name: default for name, _, default in (word.partition("=") for word in words)}
                self.arguments |= {name: given.get(name, default) for name, default in defaults.items()}
            case "ENV":
                self.environment |= step.pairs(self.variables)
            case "LABEL":
                self.labels |= step.pairs(self.variables)
            case "USER":
                self.user = words[0]
            case "WORKDIR":
                self.folder = words[0]
            case "ENTRYPOINT":
                self.entrypoint = tuple(words)
            case "CMD":
                self.command = tuple(words)
            case other:
                raise ValueError(f"{other} is not known here")


def container(image: Image, scratch: Path, *command: str, shared: Path | None = None) -> subprocess.Popen[str]:
    """Runs the command in the image as a `restricted` pod does: with its user, no capabilities, no writable files.

    `shared` is a folder of this machine at /mnt, read-only. The network is this machine's.
    """
    merged = scratch / "container"
    merged.mkdir(exist_ok=True)
    script = _mount(image.layers, merged)
    script += f'mount --bind -o ro "{shared}" "{merged}/mnt"\n' if shared else ""
    script += f'exec chroot "{merged}" setpriv "$@"'
    user, _, group = image.user.partition(":")
    rights = [f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
    rights += ["--inh-caps=-all", "env", "-i", "-C", "/"]
    settings = [f"{name}={value}" for name, value in image.environment.items()]
    argv = [*_APART, "sh", "-ec", script, "sh", *rights, *settings, *command]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def first_process(container: subprocess.Popen[str]) -> int:
    """Returns the pid, on this machine, of the first process in the container."""
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
    return int(eventually(lambda: children.read_text().split())[0])


def _mount(layers: Sequence[Path], merged: Path, upper: Path | None = None) -> str:
    """Returns shell commands that mount layers at `merged`, read-only without an upper layer."""
    lower = ":".join(str(layer) for layer in layers)
    above = f",upperdir={upper},workdir={upper.with_name('work')}" if upper else ""
    mode = "rw" if upper else "ro"
    return (
        f'mount -t overlay overlay -o "{mode},lowerdir={lower}{above}" "{merged}"\n'
        f'mount --bind /dev "{merged}/dev"\nmount -t proc proc "{merged}/proc"\n'
    )
