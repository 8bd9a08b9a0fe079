"""Runs the tests of single modules: `make check FILE="src/tfjob_controller/kube/cache/store.py hack/demo/play.py"`.

The tests of a module are its mirror (src/tfjob_controller/kube/cache/store.py is tested by
test/unit/kube/cache/test_store.py, and modules of hack in the same way), the mirror's further parts (test_store_*.py
where store_*.py is no module), and the property tests that import the module. A module without a mirror gets the unit
tests that import it. The arguments may also name test files or folders of tests. Without arguments, the files
that differ from the last commit are taken.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
# Where modules are, and the folder from which their dotted names begin.
_ROOTS = {Path("src/tfjob_controller"): Path("src"), Path("hack"): Path("hack")}
_UNIT, _PROPERTY = Path("test/unit"), Path("test/property")
EXIT_USAGE = 2


class UnknownFileError(Exception):
    """A file that has no tests by any rule; one line."""


def find_tests(file: Path, repository: Path = REPOSITORY) -> list[Path]:
    """Returns the tests of a file of src, hack or test. Raises UnknownFileError."""
    if not (repository / file).exists():
        raise UnknownFileError(f"{file} does not exist")
    if file.parts[0] == "test" and (file.name.startswith("test_") or (repository / file).is_dir()):
        return [file]
    for root, base in _ROOTS.items():
        if file.is_relative_to(root) and file.suffix == ".py":
            mirrors = list(_mirrors(file, root, repository))
            importers = _importers(file.relative_to(base), (_PROPERTY,) if mirrors else (_PROPERTY, _UNIT), repository)
            return sorted({*mirrors, *importers})
    raise UnknownFileError(f"{file} is neither a Python module of src or hack nor a test")


def _mirrors(file: Path, root: Path, repository: Path) -> Iterator[Path]:
    mirror = _UNIT / file.relative_to(root).parent / f"test_{file.name}"
    if (repository / mirror).exists():
        yield mirror
    for path in (repository / mirror.parent).glob(f"{mirror.stem}_*.py"):
        if not (repository / file.parent / path.name.removeprefix("test_")).exists():
            yield path.relative_to(repository)


def _importers(module: Path, folders: Sequence[Path], repository: Path) -> Iterator[Path]:
    """Yields the test files that import the module: `import a.b`, `from a.b import c` or `from a import b`."""
    *packages, last = [part for part in module.with_suffix("").parts if part != "__init__"]
    name, package = re.escape(".".join((*packages, last))), re.escape(".".join(packages))
    of_package = rf"|from {package} import (?:[^\n(]*\b|\([^)]*\b){last}\b" if packages else ""
    pattern = re.compile(rf"^\s*(?:import {name}\b(?!\.)|from {name} import{of_package})", re.MULTILINE)
    for folder in folders:
        for path in (repository / folder).rglob("test_*.py"):
            if pattern.search(path.read_text("utf-8")):
                yield path.relative_to(repository)


def changed_files(repository: Path = REPOSITORY) -> list[Path]:
    """Returns the files that differ from the last commit, and new ones, as far as they can have tests."""
    status = ["git", "status", "--porcelain", "--no-renames", "--untracked-files=all"]
    lines = subprocess.run(status, cwd=repository, check=True, capture_output=True, text=True).stdout.splitlines()
    return [file for file in sorted(Path(line[3:]) for line in lines) if _may_have_tests(file, repository)]


def _may_have_tests(file: Path, repository: Path) -> bool:
    if file.suffix != ".py" or not (repository / file).exists():
        return False
    folders = (_UNIT, _PROPERTY) if file.name.startswith("test_") else _ROOTS
    return any(file.is_relative_to(folder) for folder in folders)


def main(arguments: Sequence[str], execute: Callable[[str, list[str]], object] = os.execv) -> int:
    """Prints which tests the files have, and runs them in place of this process; returns 2 if there are none."""
    files = [_relative(argument) for argument in arguments] or changed_files()
    tests: dict[str, None] = {}
    try:
        for file in files:
            names = [str(path) for path in find_tests(file)]
            print(f"{file}: {' '.join(names) or 'no test imports this module'}", flush=True)
            tests |= dict.fromkeys(names)
    except UnknownFileError as error:
        print(f"make check: {error}", file=sys.stderr)
        return EXIT_USAGE
    if not tests:
        print('make check: nothing to run; name a file: make check FILE="src/…/store.py"', file=sys.stderr)
        return EXIT_USAGE
    os.chdir(REPOSITORY)
    execute(sys.executable, [sys.executable, "-m", "pytest", "-q", *tests])
    return 0


def _relative(file: str) -> Path:
    path = Path(os.path.abspath(file))
    return path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
