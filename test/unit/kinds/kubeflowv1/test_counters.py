"""The counters of training-operator, over the life of jobs."""

from __future__ import annotations

import pytest

from helpers.controllerbench import NAMESPACE
from helpers.v1bench import V1Bench
from tfjob_controller.api.kubeflowv1.types import V1_KINDS
from tfjob_controller.kinds.kubeflowv1.kind import V1_JOB_KINDS

TRANSITIONS = ("created", "deleted", "successful", "failed", "restarted")


def counts(bench: V1Bench) -> dict[str, float]:
    """Returns the counters that are not 0."""
    labels = {"job_namespace": NAMESPACE, "framework": V1_KINDS[bench.kind].framework}
    values = {
        name: bench.registry.get_sample_value(f"training_operator_jobs_{name}_total", labels) for name in TRANSITIONS
    }
    return {name: value for name, value in values.items() if value}


@pytest.mark.parametrize("kind", [kind.resource.kind for kind in V1_JOB_KINDS])
def test_a_job_of_each_kind_is_counted_for_its_framework(kind: str) -> None:
    bench = V1Bench(kind)
    type_ = {"JAXJob": "Worker", "MPIJob": "Launcher"}.get(kind, "Master")
    bench.create({type_: 1}, runPolicy={"ttlSecondsAfterFinished": 60})
    bench.settle()
    bench.runs(*bench.pods)
    bench.settle()
    assert counts(bench) == {"created": 1}
    bench.exits(*bench.pods, 0)
    bench.settle()
    assert counts(bench) == {"created": 1, "successful": 1}
    bench.clock.advance(61)
    bench.settle()
    assert counts(bench) == {"created": 1, "successful": 1, "deleted": 1}


def test_replicas_that_restart_together_count_once(bench: V1Bench) -> None:
    bench.create({"Worker": 3}, policy="ExitCode")
    bench.settle()
    bench.runs(*bench.pods)
    bench.settle()
    bench.exits("worker-0", 137)
    bench.exits("worker-1", 137)
    bench.settle()
    assert counts(bench) == {"created": 1, "restarted": 1}
    bench.is_gone(*{"worker-0", "worker-1"}.difference(bench.pods))
    bench.settle()
    bench.runs(*bench.pods)
    bench.settle()
    bench.exits("worker-2", 1)
    bench.settle()
    assert counts(bench) == {"created": 1, "restarted": 1, "failed": 1}


def test_a_restarted_controller_counts_nothing_again(bench: V1Bench) -> None:
    """training-operator counts the creation of each job that exists again."""
    bench.create({"Worker": 1}, policy="ExitCode")
    bench.settle()
    bench.runs(*bench.pods)
    bench.settle()
    bench.exits("worker-0", 137)
    bench.settle()
    before = counts(bench)
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert counts(bench) == before == {"created": 1, "restarted": 1}
    bench.runs(*bench.pods)
    bench.exits("worker-0", 0)
    bench.settle()
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert counts(bench) == {**before, "successful": 1}


@pytest.fixture
def bench() -> V1Bench:
    return V1Bench()
