"""The page of the cases from Kubeflow Trainer's tests."""

from __future__ import annotations

from generate.kubeflowcases import render_kubeflow_cases
from kubeflowcases.table import CASES

PAGE = render_kubeflow_cases()


def test_the_number_of_cases_that_pass_is_on_top() -> None:
    differing = sum(bool(each.differs) for each in CASES)
    _, _, text = PAGE.partition("# Cases from Kubeflow Trainer's tests\n\n")
    assert text.startswith(f"**{len(CASES) - differing} of {len(CASES)} cases pass**, {differing} differ.\n")


def test_each_case_has_a_row_with_its_result() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| promise"))]
    assert len(rows) == len(CASES)
    assert sum("**differs**: " in row for row in rows) == sum(bool(each.differs) for each in CASES)
    late = [each for each in CASES if each.passes and each.is_refused_late]
    assert sum(row.endswith("| passes; refused by the controller |") for row in rows) == len(late)
    of_crds = [each for each in CASES if each.passes and each.is_of_crds]
    assert sum(row.endswith("| passes; by upstream's CRDs |") for row in rows) == len(of_crds)
