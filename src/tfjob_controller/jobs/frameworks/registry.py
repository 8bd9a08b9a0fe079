"""The registry of frameworks: those of this package, and those that other packages register.

A package registers a framework with an entry point of the group `tfjob_controller.frameworks`, whose name is the
framework's and whose object is the framework. One that cannot be used is left out with a warning in the log, and does
not affect other jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from itertools import chain, pairwise
from types import MappingProxyType
from typing import cast

import structlog

from tfjob_controller.jobs.frameworks import environment, mpi
from tfjob_controller.jobs.frameworks.base import Framework

log = structlog.get_logger(__name__)

GROUP = "tfjob_controller.frameworks"

# These are entry points of this package as well. They are listed so that a source tree works without installation.
BUILT_IN: tuple[Framework, ...] = (
    environment.TORCH,
    environment.TENSORFLOW,
    environment.JAX,
    environment.XGBOOST,
    mpi.FRAMEWORK,
    environment.PLAIN,
)

_ATTRIBUTES: Mapping[str, type] = {
    "name": str,
    "runtime": str,
    "port": int,
    "commands": tuple,
    "has_launcher": bool,
    "reserved": frozenset,
}
_METHODS = ("problem", "environment", "files", "secret", "equip")

# As in the CRDs.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_PYTHON = re.compile(r"python[0-9.]*")


@cache
def frameworks() -> Mapping[str, Framework]:
    """All frameworks by name, discovered once. A package that is installed later is found after a restart."""
    return MappingProxyType(discover())


def discover() -> dict[str, Framework]:
    """Discovers all frameworks."""
    known = {framework.name: framework for framework in BUILT_IN}
    for entry in _foreign_entries():
        try:
            framework = _loaded(entry, known)
        # Third-party code may raise anything while it is imported, or even exit.
        except (Exception, SystemExit) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            log.warning("framework left out", framework=entry.name, distribution=_distribution(entry), reason=reason)
        else:
            known[framework.name] = framework
    return known


def by_command(command: Sequence[str]) -> Framework | None:
    """The framework that the command's program selects; None if it selects none."""
    return _by_program(frameworks(), _program(command))


def _foreign_entries() -> list[EntryPoint]:
    """Entry points of other packages, in an order that does not depend on the file system."""
    own = __package__ + "."
    foreign = (entry for entry in entry_points(group=GROUP) if not entry.value.startswith(own))
    return sorted(foreign, key=lambda entry: (_distribution(entry), entry.name))


def _distribution(entry: EntryPoint) -> str:
    try:
        return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "unknown"
    # The package's metadata is broken.
    except Exception:
        return "unknown"


def _loaded(entry: EntryPoint, present: Mapping[str, Framework]) -> Framework:
    """Loads and checks a framework. Raises on any fault."""
    framework = entry.load()
    for fault in chain(_misfits(framework), _clashes(entry, framework, present)):
        raise ValueError(fault)
    return cast(Framework, framework)


def _misfits(framework: object) -> Iterator[str]:
    for name, kind in _ATTRIBUTES.items():
        if not isinstance(getattr(framework, name, None), kind):
            yield f"its {name} must be of type {kind.__name__}"
    for name in _METHODS:
        if not callable(getattr(framework, name, None)):
            yield f"it needs a method {name}"


def _clashes(entry: EntryPoint, framework: Framework, present: Mapping[str, Framework]) -> Iterator[str]:
    if not _NAME.fullmatch(framework.name):
        yield f"its name is {framework.name[:64]!r}: must be lower-case letters, digits and dashes, a letter first"
    if entry.name != framework.name:
        yield f"its name is {framework.name!r}, and that of its entry point {entry.name!r}: use one name for both"
    if framework.name in present:
        yield f"framework {framework.name} already exists: choose another name"
    for other in present.values():
        if framework.runtime == other.runtime:
            yield f"runtime {framework.runtime} belongs to framework {other.name}: name another one"
        for command in set(framework.commands) & set(other.commands):
            yield f"command {command} already selects framework {other.name}: remove it from commands"


def _program(command: Sequence[str]) -> str:
    """The base name of the program that a command starts; for `python -m MODULE` the module."""
    if not command:
        return ""
    program = command[0].rpartition("/")[2]
    return _module(command[1:]) or program if _PYTHON.fullmatch(program) else program


def _module(arguments: Sequence[str]) -> str:
    """The module that Python's arguments run; empty if they run something else."""
    for option, value in pairwise(arguments):
        if option == "-m":
            return value
        if not option.startswith("-"):
            break
    return ""


def _by_program(candidates: Mapping[str, Framework], program: str) -> Framework | None:
    return next((candidate for candidate in candidates.values() if program in candidate.commands), None)
