"""Tests of lab.nodejobs: the jobs on real nodes that a seed determines, and their manifests."""

from __future__ import annotations

import subprocess

from lab.jobs import EXPECTS, FAILED, TFJOB, JobPlan
from lab.nodejobs import COMPOSITIONS, PodPart, node_job_plan, objects_of


def flavour_of(plan: JobPlan) -> str:
    return plan.name.rpartition("-")[0]


PLANS = [node_job_plan(number, seed=4) for number in range(200)]
ONE_OF_EACH_FLAVOUR = list({flavour_of(plan): plan for plan in PLANS}.values())


def parts(plan: JobPlan) -> list[PodPart]:
    return [part for part in plan.parts if isinstance(part, PodPart)]


def test_the_same_seed_produces_the_same_jobs_in_any_order() -> None:
    assert [node_job_plan(number, seed=4) for number in reversed(range(200))] == PLANS[::-1]
    assert node_job_plan(0, seed=5) != PLANS[0]


def test_all_compositions_policies_and_results_occur() -> None:
    assert {part.composition for plan in PLANS for part in parts(plan)} == set(COMPOSITIONS)
    assert {plan.restart_policy for plan in PLANS if plan.kind == TFJOB} == {"", "Never", "OnFailure"}
    assert {plan.spec["cleanPodPolicy"] for plan in PLANS if plan.kind == TFJOB} == {"Running", "None", "All"}
    assert len({plan.expects for plan in PLANS}) == 2


def test_the_errors_of_programs_reach_a_limit_and_do_not_exceed_it() -> None:
    for plan in PLANS:
        limit = plan.spec.get("backoffLimit", plan.spec.get("maxRestarts"))
        errors = sum(part.errors for part in parts(plan))
        assert limit in (None, errors) or plan.expects == FAILED, plan.name


# One plan for each kind of job with each composition, since the scripts depend on nothing else but numbers.
SCRIPTED = list({(plan.kind, part.composition): plan for plan in PLANS for part in parts(plan)}.values())


def test_the_scripts_are_valid_and_the_job_comes_last() -> None:
    for plan in SCRIPTED:
        *runtimes, job = objects_of(plan, "/tmp/marks")
        assert (job["kind"], job["metadata"]["annotations"][EXPECTS]) == (plan.kind, plan.expects)
        assert len(runtimes) == (plan.kind != TFJOB)
        templates = [spec["template"] for spec in job["spec"].get("replicaSpecs", ())]
        templates += [template for runtime in runtimes for template in runtime["spec"]["templates"].values()]
        for spec in (template["spec"] for template in templates):
            for container in (*spec["initContainers"], *spec["containers"]):
                for script in container.get("command", ())[2:]:
                    subprocess.run(["/bin/sh", "-n", "-c", script], check=True)


def test_a_program_is_killed_at_its_first_starts_then_fails_its_probe_and_then_runs() -> None:
    part = PodPart("WORKER", 1, 0.1, exit_code=7, failures=1, is_sick=True)
    plan = JobPlan(TFJOB, [part], "j")
    container = objects_of(plan, "/marks")[-1]["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    script = container["command"][2]
    assert container["livenessProbe"]["exec"]["command"] == ["test", "!", "-e", "/sick"]
    assert script.index("exit 137") < script.index("touch /sick") < script.index("exit 7")
