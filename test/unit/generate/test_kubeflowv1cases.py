"""The page of the cases from training-operator's tests."""

from __future__ import annotations

from generate.kubeflowv1cases import render_kubeflow_v1_cases
from kubeflowcases.trainingoperator import V1_CASES

PAGE = render_kubeflow_v1_cases()


def test_the_numbers_of_cases_are_on_top() -> None:
    passing = sum(case.passes for case in V1_CASES)
    without_test = sum(not case.tests for case in V1_CASES)
    expected = (
        f"**{passing} of 159 cases pass**, {159 - passing - without_test} differ, {without_test} have no test here."
    )
    assert expected in PAGE


def test_each_case_has_a_row_in_the_order_of_the_numbers() -> None:
    rows = [line.split(" | ")[0].removeprefix("| ") for line in PAGE.splitlines() if line.startswith("| ")]
    assert [int(row) for row in rows if row.isdigit()] == list(range(1, 160))
