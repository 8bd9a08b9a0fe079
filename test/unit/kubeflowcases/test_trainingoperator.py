"""The table of training-operator's cases: all are there, and the tests that it names exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kubeflowcases.trainingoperator import V1_CASES, V1Case

ROOT = Path(__file__).parents[3]


def test_the_cases_are_those_of_the_contract() -> None:
    assert [case.number for case in V1_CASES] == list(range(1, 160))


def test_the_tests_that_are_named_exist() -> None:
    named = {f"test/{test}" for case in V1_CASES for test in case.tests}
    files = sorted({test.partition("::")[0] for test in named})
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    collected = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    there = set(collected.stdout.splitlines())
    there |= {test.partition("[")[0] for test in there}
    assert sorted(named - there) == [], collected.stderr


@pytest.mark.parametrize(
    ("promise", "tests", "differs"),
    [
        pytest.param("No sentence", ("a",), "", id="promise"),
        pytest.param("A sentence.", ("a",), "None", id="difference"),
        pytest.param("A sentence.", (), "", id="no test and no reason"),
    ],
)
def test_a_case_has_tests_or_a_reason_and_its_texts_are_sentences(
    promise: str, tests: tuple[str, ...], differs: str
) -> None:
    with pytest.raises(ValueError, match="its texts are sentences"):
        V1Case(1, "place", promise, tests, differs)
