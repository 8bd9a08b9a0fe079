"""The cases of Kubeflow Trainer: those that need no API server, and rules of the table."""

from __future__ import annotations

from collections import Counter

import pytest

from helpers.kubeflowcases import check_plan
from kubeflowcases.model import Case
from kubeflowcases.table import CASES


@pytest.mark.parametrize("case", [pytest.param(each, id=each.name) for each in CASES if each.is_pure])
def test_the_plan_keeps_a_promise_of_upstreams_tests_or_its_difference_is_as_described(case: Case) -> None:
    check_plan(case)


def test_every_case_has_a_name_of_its_own() -> None:
    names = Counter(each.job_name or each.name for each in CASES)
    assert [name for name, number in names.items() if number > 1] == []
