"""docs/kubeflow-trainer-cases.md: the promises of Kubeflow Trainer's own tests, and what holds here."""

from __future__ import annotations

from collections.abc import Iterable

from generate.markdown import page, table
from kubeflowcases.model import Case
from kubeflowcases.table import CASES, TOPICS
from localcluster.kubeflowtrainer import KUBEFLOW_TRAINER

_LATE = "passes; refused by the controller"
_CRDS = "passes; by upstream's CRDs"


def render_kubeflow_cases() -> str:
    return page(
        "Cases from Kubeflow Trainer's tests",
        "hack/kubeflowcases",
        _summary(CASES),
        *(f"## {topic}\n\n{_table(cases)}" for topic, cases in TOPICS.items()),
    )


def _summary(cases: Iterable[Case]) -> str:
    every = tuple(cases)
    passed = [case for case in every if case.passes]
    late = [case for case in passed if case.is_refused_late]
    of_crds = sum(case.is_of_crds for case in passed)
    on_cluster = sum(not case.is_pure for case in every)
    return f"""
**{len(passed)} of {len(every)} cases pass**, {len(every) - len(passed)} differ.

Kubeflow Trainer {KUBEFLOW_TRAINER.version} promises in its own tests and examples what happens to TrainJobs and
runtimes of `trainer.kubeflow.org/v1alpha1`. Each case is such a promise; of promises that one rule keeps, such as how
jobs of each framework end, one is a case. The tests of this project create the same
objects for [its own implementation](kubeflow-trainer.md) and compare what follows: {on_cluster} cases on a real API
server with the controller, the others on the plan of the job, where an API server adds nothing. A case that differs
has its reason, and its test asserts what happens here.

Three differences hold for all cases and are not repeated:

- There is no JobSet. What upstream's tests read in its replicated jobs is compared with the Jobs.
- No admission webhook runs. What upstream's webhooks refuse, the controller refuses: the job is stored, gets no Jobs,
  and has the condition `Failed`, whose message names the field. {len(late)} of the cases that pass are of this kind:
  *{_LATE}*.
- A variable counts by the value that the program finds. The number of a node comes from `JOB_COMPLETION_INDEX`
  instead of an annotation.

Of the cases that pass, {of_crds} are the work of the API server with upstream's CRDs, whatever controller runs:
*{_CRDS}*.

The second column names upstream's test by its place: `controller` and `webhooks` are in `test/integration`,
`plugins` in `pkg/runtime/framework`, `core` in `pkg/runtime`; other places are given in full.
"""


def _table(cases: Iterable[Case]) -> str:
    return table(("promise", "upstream's test", "here"), ((case.promise, case.source, _result(case)) for case in cases))


def _result(case: Case) -> str:
    if case.differs:
        return f"**differs**: {case.differs}"
    if case.is_of_crds:
        return _CRDS
    return _LATE if case.is_refused_late else "passes"
