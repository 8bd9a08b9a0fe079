"""Tests of lab.jobs: the jobs that a seed determines."""

from __future__ import annotations

from lab.jobs import (
    EXPECTS,
    FAILED,
    FLAVOURS,
    KILLED,
    SUCCESS,
    TFJOB,
    JobPlan,
    Part,
    PodOutcomes,
    job_plan,
    manifest,
    path_of,
    warm_up_plans,
)
from localcluster.podstatus import Outcome


def flavour_of(plan: JobPlan) -> str:
    return plan.name.rpartition("-")[0]


PLANS = [job_plan(number, seed=4) for number in range(300)]
ONE_OF_EACH = list({flavour_of(plan): plan for plan in PLANS}.values())


def test_the_same_seed_produces_the_same_jobs_in_any_order() -> None:
    assert [job_plan(number, seed=4) for number in reversed(range(300))] == PLANS[::-1]
    assert job_plan(0, seed=5) != PLANS[0]


def test_every_flavour_occurs_and_names_are_unique() -> None:
    assert {flavour_of(plan) for plan in PLANS} == FLAVOURS.keys()
    assert len({plan.name for plan in PLANS}) == len(PLANS)


def test_a_manifest_contains_the_expected_result() -> None:
    for plan in (*ONE_OF_EACH, *warm_up_plans()):
        body = manifest(plan)
        assert body["metadata"]["annotations"][EXPECTS] == plan.expects in (SUCCESS, FAILED), plan.name
        assert (body["kind"], body["metadata"]["name"]) == (plan.kind, plan.name)
        assert path_of(plan, "chaos").endswith("tfjobs" if plan.kind == TFJOB else "trainjobs"), plan.name
        assert ("gang" in body["spec"]) == plan.is_gang, plan.name


def test_the_chief_exits_unless_the_job_has_a_deadline() -> None:
    for plan in ONE_OF_EACH:
        chief = next(part for part in plan.parts if part.role in ("MASTER", "launcher", "node", "WORKER"))
        assert (chief.run_seconds is None) == ("activeDeadlineSeconds" in plan.spec), plan.name
        assert (chief.exit_code == 0) or plan.expects == FAILED, plan.name


def pod(name: str, role: str, index: str) -> dict[str, object]:
    return {"metadata": {"labels": {"tf_job_name": name, "job_type": role, "task_index": index}}}


def test_the_first_starts_of_replica_0_are_killed_in_any_pod() -> None:
    plan = JobPlan(TFJOB, [Part("MASTER", 1, 3.0, failures=2), Part("WORKER", 2, None)], "j")
    outcomes = PodOutcomes({"j": plan}.get)
    killed = Outcome(after_seconds=1.0, exit_code=KILLED)
    starts = [outcomes(pod("j", "MASTER", "0"), 0) for _ in range(3)]
    assert starts == [killed, killed, Outcome(after_seconds=3.0)]
    assert outcomes(pod("j", "WORKER", "1"), 0) == Outcome()


def test_a_pod_without_a_job_runs_as_its_annotations_specify() -> None:
    notes = {"annotations": {"fake-kubelet/run-seconds": "2"}}
    assert PodOutcomes({}.get)({"metadata": notes}, 0) == Outcome(after_seconds=2.0)


def test_workers_are_scaled_within_their_bounds() -> None:
    bounds = {"autoscaling": {"minWorkers": 1, "maxWorkers": 6}}
    parts = [Part("WORKER", 3, None)]
    assert JobPlan(TFJOB, parts, "j", spec=bounds).sizes == (1, 6)
    assert JobPlan(TFJOB, parts, "j").sizes == (1, 5)
    assert JobPlan(TFJOB, [Part("MASTER", 1, None)], "j").sizes == (0, 0)
