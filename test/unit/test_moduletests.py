"""`make check FILE=…` finds the tests of a module, and says so where a module has none of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moduletests import REPOSITORY, UnknownFileError, changed_files, find_tests, main

STORE = Path("src/tfjob_controller/kube/store.py")
TESTS = {
    "test/unit/kube/test_store.py": "",
    "test/unit/kube/test_store_races.py": "",
    "test/unit/kube/test_store_cached.py": "",
    "test/unit/kube/test_reflector.py": "from tfjob_controller.kube.store import Store\n",
    "test/unit/kube/test_feeding.py": "from tfjob_controller.kube import feed\n",
    "test/unit/demo/test_play.py": "import demo.play\n",
    "test/property/test_store.py": "def test() -> None:\n    import tfjob_controller.kube.store\n",
    "test/property/test_queue.py": "from tfjob_controller.kube.stores import Store\n",
}
MODULES = (
    str(STORE),
    "src/tfjob_controller/kube/store_cached.py",
    "src/tfjob_controller/kube/feed.py",
    "src/tfjob_controller/kube/orphan.py",
    "hack/demo/play.py",
    "hack/demo/__init__.py",
    "docs/page.md",
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, content in {**dict.fromkeys(MODULES, ""), **TESTS}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


def names_of(file: str | Path, repository: Path) -> list[str]:
    return [str(path) for path in find_tests(Path(file), repository)]


def test_a_module_has_its_mirror_the_mirrors_parts_and_the_property_tests_that_import_it(repository: Path) -> None:
    assert names_of(STORE, repository) == [
        "test/property/test_store.py",
        "test/unit/kube/test_store.py",
        "test/unit/kube/test_store_races.py",
    ]


def test_the_modules_of_hack_are_mirrored_too(repository: Path) -> None:
    assert names_of("hack/demo/play.py", repository) == ["test/unit/demo/test_play.py"]


def test_a_module_without_a_mirror_has_the_tests_that_import_it(repository: Path) -> None:
    assert names_of("src/tfjob_controller/kube/feed.py", repository) == ["test/unit/kube/test_feeding.py"]
    assert names_of("src/tfjob_controller/kube/orphan.py", repository) == []


@pytest.mark.parametrize("given", ["test/unit/kube/test_store.py", "test/property", "test/unit/kube"])
def test_tests_that_are_named_run_as_they_are(given: str, repository: Path) -> None:
    assert names_of(given, repository) == [given]


@pytest.mark.parametrize("given", ["docs/page.md", "src/tfjob_controller/kube/no.py", "/etc/hostname"])
def test_what_has_no_tests_by_any_rule_is_refused_in_one_line(given: str, repository: Path) -> None:
    with pytest.raises(UnknownFileError, match=given):
        find_tests(Path(given), repository)


def test_without_a_file_those_that_differ_from_the_last_commit_are_taken(repository: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.com")
        subprocess.run(["git", *identity, *arguments], cwd=repository, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "--message=All of it.")
    assert changed_files(repository) == []
    for name in (str(STORE), "docs/page.md", "test/property/test_store.py"):
        (repository / name).write_text("# changed\n")
    (repository / "hack/new.py").write_text("")
    (repository / "hack/added.py").write_text("")
    (repository / "src/tfjob_controller/kube/feed.py").unlink()
    git("add", "hack/added.py")
    assert [str(path) for path in changed_files(repository)] == [
        "hack/added.py",
        "hack/new.py",
        str(STORE),
        "test/property/test_store.py",
    ]


def test_the_command_runs_the_tests_of_several_files_once_and_says_which(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    commands: list[list[str]] = []
    names, prepare, tests = "hack/checknames.py", "hack/testprepare.py", "test/unit/test_checknames.py"
    main([names, prepare, tests], lambda _, command: commands.append(command))
    assert commands == [[sys.executable, "-m", "pytest", "-q", tests]]
    assert capsys.readouterr().out.splitlines() == [
        f"{names}: {tests}",
        f"{prepare}: no test imports this module",
        f"{tests}: {tests}",
    ]


@pytest.mark.parametrize("given", ["hack/testprepare.py", "hack/no.py"])
def test_without_tests_nothing_runs_and_the_command_fails(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    commands: list[list[str]] = []
    assert main([given], lambda _, command: commands.append(command)) == 2
    assert commands == []
