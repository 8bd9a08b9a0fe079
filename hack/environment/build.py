"""Creates an environment, or adds packages to one that has less than what is asked for.

An environment has parts, each with a lock under `hack/requirements` that holds everything of the earlier parts as well:
`local` is what the local cluster and the demos need, `dev` is that and all tools for tests, checks and the docs. The
mark `.ready-<part>` in the environment says that a part is there, and holds a digest of its lock: a changed lock leads
to a new environment, and a new part is installed beside what is there.

uv installs the packages. pip installs uv, whose hash is in the same lock, and everything if uv cannot be had.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from environment import pipsettings

REPOSITORY = Path(__file__).resolve().parents[2]
LOCKS = REPOSITORY / "hack" / "requirements"
PARTS = ("local", "dev")
# Most of the kubernetes package is models and an asyncio client that nothing here imports: 16 s of compiling.
_NEVER_IMPORTED = r"/kubernetes/(aio|client/(api|models))/|/tests?/"
_TESTS = r"/tests?/"


class EnvironmentBuildError(Exception):
    """A message for the user."""


def make(folder: Path, part: str) -> None:
    """Makes `folder` an environment with this part. Raises EnvironmentBuildError."""
    if not is_current(folder, PARTS[0]):
        _say(f"making {folder} with Python {sys.version.split()[0]}")
        _create(folder)
    if not is_current(folder, part):
        _say(f"installing the packages of hack/requirements/{part}.txt into {folder}")
        _install(folder, ["--require-hashes", "-r", str(_lock(part))])
        _compile(folder, _NEVER_IMPORTED)
    _install(folder, ["--no-deps", "--no-build-isolation", "-e", str(REPOSITORY)])
    for each in PARTS[: PARTS.index(part) + 1]:
        _mark(folder, each).write_text(_digest(_lock(each)))


def make_separate(folder: Path, lock: Path) -> None:
    """Makes `folder` an environment with the packages of this lock and nothing else. Raises EnvironmentBuildError.

    One of another lock, or of another Python, is replaced.
    """
    mark, content = folder / ".ready", f"{sys.version} {sys.base_prefix} {_digest(lock)}"
    if mark.exists() and mark.read_text() == content:
        return
    _say(f"installing the packages of {lock.name} into {folder}")
    _create(folder)
    _install(folder, ["--require-hashes", "-r", str(lock)])
    _compile(folder, _TESTS)
    mark.write_text(content)


def is_current(folder: Path, part: str) -> bool:
    """Returns whether the environment has this part, as locked now."""
    mark = _mark(folder, part)
    return mark.exists() and mark.read_text() == _digest(_lock(part))


def requirement(lock: str, name: str) -> str:
    """Returns the lines of a lock that pin one package. Raises EnvironmentBuildError if there are none."""
    found = re.search(rf"^{re.escape(name)}==.*\n(?:[ \t]+--hash=.*\n)*", lock, re.MULTILINE)
    if found is None:
        raise EnvironmentBuildError(f"the lock has no {name}: make lock")
    return found[0]


def _create(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, symlinks=True)
    if not _get_uv(folder):
        _say("uv cannot be installed: using pip, which takes longer")
        _run([_python(folder), "-m", "ensurepip"])


def _get_uv(folder: Path) -> bool:
    """Installs the locked uv with the pip of the Python that runs this; returns whether that succeeded."""
    with tempfile.TemporaryDirectory() as scratch:
        pinned = Path(scratch) / "uv.txt"
        pinned.write_text(requirement((LOCKS / f"{PARTS[0]}.txt").read_text(), "uv"))
        options = ["--quiet", "--no-compile", "--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(pinned)]
        own_pip = [sys.executable, "-m", "pip", "--python", str(_python(folder)), "install", *options]
        return _succeeds(own_pip) or _get_uv_with_new_pip(folder, options)


def _get_uv_with_new_pip(folder: Path, options: Sequence[str]) -> bool:
    """The Python that runs this may have no pip (Debian), or one that is too old for --python."""
    python = str(_python(folder))
    return _succeeds([python, "-m", "ensurepip"]) and _succeeds([python, "-m", "pip", "install", *options])


def _install(folder: Path, arguments: Sequence[str]) -> None:
    if not _install_with_uv(folder, arguments):
        if not _has_pip(folder):
            _run([_python(folder), "-m", "ensurepip"])
        _run([_python(folder), "-m", "pip", "install", "--quiet", "--no-compile", *arguments])


def _install_with_uv(folder: Path, arguments: Sequence[str]) -> bool:
    """Returns whether uv is there and succeeded. After a failure pip may still know how to reach the index."""
    uv = folder / "bin" / "uv"
    if not uv.exists():
        return False
    python = _python(folder) if _has_pip(folder) else sys.executable
    settings = pipsettings.for_uv(pipsettings.read(python), os.environ)
    command = [str(uv), "pip", "install", "--quiet", "--no-config", "--python", str(_python(folder))]
    if _succeeds([*command, *settings.arguments, *arguments], dict(settings.variables)):
        return True
    _say("uv failed: trying pip")
    return False


def _has_pip(folder: Path) -> bool:
    return (folder / "bin" / "pip").exists()


def _compile(folder: Path, unused: str) -> None:
    """Compiles all modules whose path does not match `unused`. Those for other versions of Python do not compile."""
    argv = [str(_python(folder)), "-m", "compileall", "-qq", "-j", "0", "-x", unused, str(folder / "lib")]
    subprocess.run(argv, capture_output=True, check=False)


def _mark(folder: Path, part: str) -> Path:
    return folder / f".ready-{part}"


def _lock(part: str) -> Path:
    return LOCKS / f"{part}.txt"


def _digest(lock: Path) -> str:
    return hashlib.sha256(lock.read_bytes()).hexdigest()


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _run(argv: Sequence[str | Path]) -> None:
    if not _succeeds(argv):
        raise EnvironmentBuildError("the environment cannot be made: see above")


def _succeeds(argv: Sequence[str | Path], variables: dict[str, str] | None = None) -> bool:
    """Runs a command whose output the user sees."""
    done = subprocess.run(
        [str(word) for word in argv], env={**os.environ, **(variables or {})}, stdout=sys.stderr, check=False
    )
    return done.returncode == 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
