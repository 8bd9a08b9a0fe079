"""What is installed into an environment, and when: a pip and a uv that only write down how they were called."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from environment import build
from environment.build import EnvironmentBuildError

PIN = f"uv==1.2.3 ; python_version >= '3' \\\n    --hash=sha256:{'a' * 64} \\\n    --hash=sha256:{'b' * 64}\n"
LOCK = f"rich==14.0 \\\n    --hash=sha256:{'c' * 64}\n{PIN}    # via tfjob-controller (setup.cfg)\nuvloop==0.2\n"
# A Python whose pip "installs" a uv that writes its arguments into a file.
PIP = """\
import sys
from pathlib import Path
if "--python" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--python") + 1]).parent
    (folder / "uv").write_text('#!/bin/sh\\necho "$@" >>{calls}\\n{uv}\\n')
    (folder / "uv").chmod(0o755)
    (folder / "pip").touch()
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """How uv was called, a line each. The locks are small ones that may be changed."""
    locks = tmp_path / "locks"
    locks.mkdir()
    for part in build.PARTS:
        (locks / f"{part}.txt").write_text(LOCK)
    monkeypatch.setattr(build, "LOCKS", locks)
    calls = tmp_path / "calls"
    calls.touch()
    provide_pip(tmp_path, monkeypatch, PIP.format(calls=calls, uv="true"))
    return calls


def provide_pip(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Every Python that is started from now on has this pip."""
    package = folder / "modules" / "pip"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder / "modules"))


def locks_of(calls: Path) -> list[str]:
    """The files that uv was told to install, one for each call that names any."""
    lines = [line.split() for line in calls.read_text().splitlines()]
    return [Path(words[words.index("-r") + 1]).stem for words in lines if "-r" in words]


def test_the_pin_of_one_package_is_taken_out_of_a_lock_with_its_hashes() -> None:
    assert build.requirement(LOCK, "uv") == PIN
    with pytest.raises(EnvironmentBuildError, match="no uvl: make lock"):
        build.requirement(LOCK, "uvl")


def test_an_environment_grows_and_is_not_made_again(tmp_path: Path, calls: Path) -> None:
    folder = tmp_path / "environment"
    build.make(folder, "local")
    kept = folder / "kept"
    kept.touch()
    assert [build.is_current(folder, part) for part in build.PARTS] == [True, False]
    build.make(folder, "dev")
    assert [build.is_current(folder, part) for part in build.PARTS] == [True, True]
    build.make(folder, "local")
    assert locks_of(calls) == ["local", "dev"]
    assert kept.exists()
    assert "--require-hashes" in calls.read_text()


def test_an_environment_that_has_everything_also_has_its_first_part(tmp_path: Path, calls: Path) -> None:
    build.make(tmp_path / "environment", "dev")
    assert build.is_current(tmp_path / "environment", "local")
    assert locks_of(calls) == ["dev"]


def test_a_changed_lock_leads_to_a_new_environment(tmp_path: Path, calls: Path) -> None:
    folder = tmp_path / "environment"
    build.make(folder, "dev")
    (folder / "of the old one").touch()
    (build.LOCKS / "local.txt").write_text(f"{LOCK}# changed\n")
    build.make(folder, "local")
    assert not (folder / "of the old one").exists()
    assert [build.is_current(folder, part) for part in build.PARTS] == [True, False]


def test_pip_installs_what_uv_cannot(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    record = f"open({str(calls)!r}, 'a').write('pip ' + ' '.join(sys.argv[1:]) + '\\n')\n"
    pip = PIP.format(calls=calls, uv="exit 1") + record
    provide_pip(tmp_path, monkeypatch, pip)
    folder = tmp_path / "environment"
    build.make(folder, "local")
    assert "uv failed: trying pip" in capfd.readouterr().err
    assert "pip install --quiet --no-compile --require-hashes" in calls.read_text()
    assert build.is_current(folder, "local")


def test_pip_settings_reach_uv(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = "print(\"global.index-url='https://index.example/simple'\")\n"
    provide_pip(tmp_path, monkeypatch, PIP.format(calls=calls, uv=f"echo $UV_DEFAULT_INDEX >>{calls}") + listing)
    build.make(tmp_path / "environment", "local")
    assert "https://index.example/simple" in calls.read_text().splitlines()


def test_the_environment_runs_the_python_that_made_it(tmp_path: Path, calls: Path) -> None:
    build.make(tmp_path / "environment", "local")
    python = tmp_path / "environment" / "bin" / "python"
    assert os.path.realpath(python) == os.path.realpath(sys.executable)


def test_a_separate_environment_has_the_packages_of_its_lock_and_not_this_project(tmp_path: Path, calls: Path) -> None:
    lock = tmp_path / "other.txt"
    lock.write_text("rich==14.0\n")
    folder = tmp_path / "environment"
    for _ in range(2):
        build.make_separate(folder, lock)
    assert locks_of(calls) == ["other"]
    assert "--require-hashes" in calls.read_text()
    assert " -e " not in calls.read_text()
    lock.write_text("rich==14.1\n")
    build.make_separate(folder, lock)
    assert locks_of(calls) == ["other", "other"]


def test_a_separate_environment_that_was_not_finished_is_made_again(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "environment"
    provide_pip(tmp_path, monkeypatch, "raise SystemExit(1)\n")
    with pytest.raises(EnvironmentBuildError):
        build.make_separate(folder, build.LOCKS / "local.txt")
    provide_pip(tmp_path, monkeypatch, PIP.format(calls=calls, uv="true"))
    build.make_separate(folder, build.LOCKS / "local.txt")
    assert locks_of(calls) == ["local"]
