"""hack/platforms: what is resolved, and how the table reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from platforms.wheels import PYTHONS, REPOSITORY, Outcome, missing_of, requirements, table

SETUP = """
[options]
install_requires =
    # why
    one >=1

[options.extras_require]
two =
    three <4
four =
    %(two)s
"""


@pytest.mark.parametrize(("extra", "expected"), [("", ["one >=1"]), ("four", ["one >=1", "three <4"])])
def test_requirements_are_those_of_the_package_and_of_one_extra(
    extra: str, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "setup.cfg").write_text(SETUP)
    assert requirements(tmp_path / "setup.cfg", extra) == expected


def test_the_base_has_nothing_that_some_platform_lacks() -> None:
    names = {line.split()[0] for line in requirements(REPOSITORY / "setup.cfg")}
    assert not names & {"uvloop", "httptools", "google-re2", "cryptography"}
    assert "kubernetes" in names


@pytest.mark.parametrize(
    ("error", "package"),
    [
        (
            "  x No solution found\n  hint: You require CPython 3.14 (`cp314`), but we only found wheels for `uvloop` "
            "(v0.6.1) with the following Python ABI tag: `cp35m`",
            "uvloop",
        ),
        ("hint: Wheels are required for `google-re2` because building from source is disabled", "google-re2"),
        ("error: the index cannot be reached\n", "error: the index cannot be reached"),
        ("", "uv said nothing"),
    ],
)
def test_the_package_without_a_wheel_is_named(error: str, package: str) -> None:
    assert missing_of(error) == package


def test_a_cell_has_the_pythons_for_which_all_wheels_exist() -> None:
    outcomes = [Outcome("here", each, "") for each in PYTHONS]
    outcomes += [Outcome("here", each, "dashboard", "" if each in PYTHONS[:2] else "six") for each in PYTHONS]
    outcomes += [Outcome("here", each, "operator", "uvloop") for each in PYTHONS]
    assert table(outcomes) == [
        "| platform | base | `[dashboard]` | `[operator]` |",
        "|---|---|---|---|",
        "| here | 3.11 to 3.14 | 3.11, 3.12; no wheels of six for 3.13, 3.14 | no wheels of uvloop |",
    ]
