"""Runs the tests of single modules: `make check FILE="src/tfjob_controller/kube/cache/store.py hack/demo/play.py"`.

The tests of a module are its mirror (src/tfjob_controller/kube/cache/store.py is tested by
test/unit/kube/cache/test_store.py, and modules of hack in the same way), the mirror's further parts (test_store_*.py
where store_*.py is no module), and the property tests that import the module. A module without a mirror gets the unit
tests that import it. The arguments may also name test files or folders of tests. Without arguments, the files
that differ from the last commit are taken.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PACKAGE = "tfjob_controller"
# Where modules are, and what their dotted names begin with.
_ROOTS = ((Path("src") / PACKAGE, (PACKAGE,)), (Path("hack"), ()))
_UNIT, _PROPERTY = Path("test/unit"), Path("test/property")

EXIT_USAGE = 2


class UnknownFileError(Exception):
    """A file that has no tests by any rule; one line."""


@dataclass(frozen=True, slots=True)
class Found:
    """The tests of one file, relative to the repository. `mirror` is the one that the rule names, there or not."""

    file: Path
    mirror: Path | None
    tests: tuple[Path, ...]

    @property
    def has_mirror(self) -> bool:
        return self.mirror is None or self.mirror in self.tests


def find_tests(file: Path, repository: Path = REPOSITORY) -> Found:
    """The tests of a file of src, hack or test. Raises UnknownFileError."""
    if not (repository / file).exists():
        raise UnknownFileError(f"{file} does not exist")
    if file.parts[0] == "test" and (file.name.startswith("test_") or (repository / file).is_dir()):
        return Found(file, None, (file,))
    for root, package in _ROOTS:
        if file.is_relative_to(root) and file.suffix == ".py":
            return _tests_of_module(file, root, package, repository)
    raise UnknownFileError(f"{file} is neither a Python module of src or hack nor a test")


def _tests_of_module(file: Path, root: Path, package: tuple[str, ...], repository: Path) -> Found:
    within = file.relative_to(root)
    mirror = _UNIT / within.parent / f"test_{within.name}"
    parts = [*package, *within.with_suffix("").parts]
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    tests = {mirror} if (repository / mirror).exists() else set()
    tests.update(_further_parts(mirror, file, repository))
    for folder in (_PROPERTY,) if mirror in tests else (_PROPERTY, _UNIT):
        tests.update(_importers(name, folder, repository))
    return Found(file, mirror, tuple(sorted(tests)))


def _further_parts(mirror: Path, file: Path, repository: Path) -> Iterator[Path]:
    """Such as test_admission_races.py beside test_admission.py, unless there is a module admission_races.py."""
    for path in (repository / mirror.parent).glob(f"{mirror.stem}_*.py"):
        if not (repository / file.parent / path.name.removeprefix("test_")).exists():
            yield path.relative_to(repository)


def _importers(name: str, folder: Path, repository: Path) -> Iterator[Path]:
    """The test files of a folder that import the module."""
    last = name.rpartition(".")[2]
    for path in (repository / folder).rglob("test_*.py"):
        source = path.read_text("utf-8")
        if last in source and name in _imports(source):
            yield path.relative_to(repository)


def _imports(source: str) -> set[str]:
    """The names of all modules that a file may import: `from a import b` names a, and a.b, which may be one."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def describe(found: Found) -> str:
    """One line that says which tests a file has, and whether its mirror is missing."""
    names = " ".join(str(path) for path in found.tests)
    if found.has_mirror:
        return f"{found.file}: {names}"
    if found.tests:
        return f"{found.file}: no mirror {found.mirror}; tests that import the module: {names}"
    return f"{found.file}: no mirror {found.mirror}, and no unit or property test imports the module"


def changed_files(repository: Path = REPOSITORY) -> list[Path]:
    """The files that differ from the last commit, and new ones, as far as they can have tests."""
    listed = subprocess.run(
        ["git", "ls-files", "--modified", "--others", "--exclude-standard", "--deduplicate"],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    staged = subprocess.run(
        ["git", "diff", "--cached", "--name-only"], cwd=repository, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return [Path(name) for name in sorted({*listed, *staged}) if _may_have_tests(Path(name), repository)]


def _may_have_tests(file: Path, repository: Path) -> bool:
    if file.suffix != ".py" or not (repository / file).exists():
        return False
    if file.name.startswith("test_"):
        return file.is_relative_to(_UNIT) or file.is_relative_to(_PROPERTY)
    return any(file.is_relative_to(root) for root, _ in _ROOTS)


def main(arguments: Sequence[str], execute: Callable[[str, list[str]], object] = os.execv) -> int:
    """Print which tests the files have, and run them in place of this process; returns 2 if there are none."""
    files = [_relative(each) for each in arguments] or changed_files()
    if not files:
        print('no file has changed: name one, as in make check FILE="src/tfjob_controller/kube/cache/store.py"')
        return EXIT_USAGE
    try:
        every = [find_tests(file) for file in files]
    except UnknownFileError as error:
        print(f"make check: {error}", file=sys.stderr)
        return EXIT_USAGE
    for found in every:
        print(describe(found), flush=True)
    tests = _without_repetition(path for found in every for path in found.tests)
    if not tests:
        print("make check: there is nothing to run", file=sys.stderr)
        return EXIT_USAGE
    os.chdir(REPOSITORY)
    execute(sys.executable, [sys.executable, "-m", "pytest", "-q", *tests])
    return 0


def _relative(file: str) -> Path:
    path = Path(os.path.abspath(file))
    return path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path


def _without_repetition(paths: Iterable[Path]) -> list[str]:
    return list(dict.fromkeys(str(path) for path in paths))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
