"""The description of a program: its package, version and place in the cache. `binaries` has the table of them."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import LocalClusterError

HACK = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Program:
    """A program, the package that builds it, and the module requirement in go.mod that gives its version."""

    name: str
    folder: str  # under hack/, with the go.mod
    package: str
    requirement: str
    cgo: bool = False
    tags: str = ""

    @property
    def module_dir(self) -> Path:
        return HACK / self.folder

    @property
    def version(self) -> str:
        return required_version(self.module_dir / "go.mod", self.requirement)


@functools.cache
def required_version(go_mod: Path, module: str) -> str:
    """The version that a go.mod requires of a module."""
    match = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", go_mod.read_text(), re.MULTILINE)
    if match is None:
        raise LocalClusterError(f"{go_mod} requires no {module}")
    return match.group(1)


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tfjob-controller"


def cache_path(program: Program) -> Path:
    return cache_root() / "bin" / program.version / program.name


def is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
