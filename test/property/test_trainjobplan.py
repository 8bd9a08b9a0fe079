"""A plan as a pure function of a TrainJob and its runtime: there is a plan, or one sentence with the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.anytrainspec import runtime_specs, train_specs
from helpers.examples import examples
from helpers.trainworld import CLAIM, CONFIG, IN_STEPS, framework_of, runtime_spec, train_plan
from tfjob_controller.api.trainjob.runtime import TRAINING_RUNTIMES
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.api.trainjob.validation import validate, validate_runtime, validate_with_runtime
from tfjob_controller.jobs.actions.children import build_job, build_service
from tfjob_controller.jobs.naming import INDEX_REFERENCE
from tfjob_controller.jobs.plan.gangterms import ALWAYS, NO_GANGS, GangPolicy
from tfjob_controller.jobs.plan.model import Plan, Replica, UnplannableError
from tfjob_controller.kinds.trainjob.plan import build_train_plan
from tfjob_controller.kinds.trainjob.recipe import Recipe

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")

frameworks = st.sampled_from(["torch", "tensorflow", "jax", "xgboost", "mpi", "plain"])
names = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,80}[a-z0-9])?", fullmatch=True).filter(lambda name: ".." not in name)


def decoded(spec: Any, meta: Mapping[str, Any]) -> bytes:
    return json.dumps({"metadata": meta, "spec": spec}).encode()


@given(spec=train_specs, its=st.none() | runtime_specs, has_gang=st.booleans())
@settings(max_examples=examples(400))
def test_every_valid_job_is_planned_or_refused_in_one_line(spec: Any, its: Any, has_gang: bool) -> None:
    meta = {"name": "a", "namespace": "ns", "uid": "u"}
    job = TRAINJOBS.decode(decoded(spec, meta))
    runtime = TRAINING_RUNTIMES.decode(decoded(its, {"name": "r"})) if its is not None else None
    if validate(job) is not None or (runtime is not None and validate_runtime(runtime) is not None):
        return
    theirs = runtime.spec if runtime is not None else None
    if validate_with_runtime(job.spec, theirs) is not None:
        return
    gangs = GangPolicy(ALWAYS, "gang-scheduler") if has_gang else NO_GANGS
    try:
        plan = build_train_plan(Recipe(job, framework_of(job), theirs, CONFIG, gangs, restart_rules=True))
    except UnplannableError as error:
        refused = str(error)
    else:
        refused = ""
    assert "\n" not in refused
    # That is for frameworks of others.
    assert "cannot plan this job" not in refused
    if refused:
        return
    # The first and the last: there may be a thousand.
    for replica in (*plan.replicas.all[:3], plan.replicas.all[-1]):
        json.dumps(build_job(plan, replica))


def env_of(plan: Plan, replica: Replica) -> dict[str, str]:
    containers = build_job(plan, replica)["spec"]["template"]["spec"]["containers"]
    (training,) = (each for each in containers if each["name"] == replica.role.name)
    values = {each["name"]: each["value"] for each in training["env"] if "value" in each}
    return {name: value.replace(INDEX_REFERENCE, str(replica.index)) for name, value in values.items()}


def address_of(replica: Replica) -> str:
    return f"{replica.name}.{replica.role.service_name}"


def services(plan: Plan) -> dict[str, int]:
    """Port by name."""
    made = (build_service(plan, each) for each in plan.replicas.all if each.role.port)
    return {each["metadata"]["name"]: each["spec"]["ports"][0]["port"] for each in made}


@given(name=names, nodes=st.integers(1, 12), framework=st.sampled_from(["torch", "jax", "xgboost"]))
def test_where_nodes_meet_there_is_a_service(name: str, nodes: int, framework: str) -> None:
    plan = train_plan(name=name, framework=framework, nodes=nodes)
    env, known = env_of(plan, plan.replicas.chief), services(plan)
    address, port = {
        "torch": lambda: (env["MASTER_ADDR"], env["MASTER_PORT"]),
        "jax": lambda: env["JAX_COORDINATOR_ADDRESS"].split(":"),
        "xgboost": lambda: (env["DMLC_TRACKER_URI"], env["DMLC_TRACKER_PORT"]),
    }[framework]()
    assert address == address_of(plan.replicas.chief)
    assert known == {plan.replicas.chief.role.service_name: int(port)}


@given(name=names, framework=frameworks, nodes=st.integers(1, 30), in_steps=st.booleans())
def test_names_are_valid_and_steps_are_parts_of_the_whole(
    name: str, framework: str, nodes: int, in_steps: bool
) -> None:
    given_fields = {"runtime": runtime_spec(workspace=CLAIM), **IN_STEPS} if in_steps else {}
    plan = train_plan(name=name, framework=framework, nodes=nodes, **given_fields)
    assert len(plan.replicas.by_name) == len(plan.replicas.all)
    assert plan.replicas.all[0] is plan.replicas.chief
    for each in plan.replicas.all:
        assert DNS_1035.fullmatch(each.name)
        job = build_job(plan, each)
        assert job["metadata"]["name"] == each.job_name
        assert each.name == (f"{each.job_name}-{each.index}" if each.role.job_name else each.job_name)
        assert job["spec"]["template"]["spec"]["restartPolicy"] in ("Never", "OnFailure")
    parts = [each.name for step in plan.steps for each in step.replicas.all]
    assert sorted(parts) == (sorted(plan.replicas.by_name) if in_steps else [])
    assert {each.name for each in plan.replicas.needed} <= set(plan.replicas.by_name)
