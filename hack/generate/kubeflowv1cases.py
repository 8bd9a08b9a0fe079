"""docs/kubeflow-v1-cases.md: the cases of training-operator's own tests, and the tests that show them here."""

from __future__ import annotations

from collections.abc import Iterable

from generate.markdown import code, page, table
from kubeflowcases.trainingoperator import V1_CASES, V1_TOPICS, V1Case


def render_kubeflow_v1_cases() -> str:
    return page(
        "Cases from training-operator's tests",
        "hack/kubeflowcases/trainingoperator.py",
        _summary(V1_CASES),
        *(f"## {topic}\n\n{_table(cases)}" for topic, cases in V1_TOPICS.items()),
    )


def _summary(cases: tuple[V1Case, ...]) -> str:
    shown = sum(case.passes for case in cases)
    differing = sum(bool(case.differs and case.tests) for case in cases)
    return f"""
**{shown} of {len(cases)} cases pass**, {differing} differ, {len(cases) - shown - differing} have no test here.

The tests of Kubeflow's training-operator 1.9.4 promise what happens to the jobs of `kubeflow.org/v1`. Each case is such
a promise, and names the tests of this project that show it for [its own implementation](kubeflow-v1.md). A case that
differs has its reason, and its tests show what happens here.

The last column has the file in `test`, the name of a test, and in brackets the id of its parameters. The third column
names upstream's test: `webhooks` is `pkg/webhooks`, `api` is `pkg/apis/kubeflow.org/v1`, and a folder of a kind is in
`pkg/controller.v1`.
"""


def _table(cases: Iterable[V1Case]) -> str:
    rows = ((str(case.number), case.promise, case.source, _result(case), _tests(case)) for case in cases)
    return table(("case", "promise", "upstream's test", "here", "shown by"), rows)


def _result(case: V1Case) -> str:
    if case.passes:
        return "passes"
    return f"**differs**: {case.differs}" if case.tests else f"**no test**: {case.differs}"


def _tests(case: V1Case) -> str:
    return "; ".join(code(test) for test in case.tests)
