"""A plan as a pure function of a job."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helpers.clusterinmemory import World, decoded, plan_of
from helpers.manifests import container, master, parameter_servers, pod_template, tfjob, workers
from tfjob_controller.jobs.actions.children import build_job, build_service
from tfjob_controller.jobs.actions.model import NO_ACTIONS

_templates = st.sampled_from(
    [
        pod_template(container()),
        pod_template(container(), restartPolicy="Never"),
        pod_template(container("side"), container(env=[{"name": "TF_CONFIG", "value": "x"}])),
    ]
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """The spec of a valid job."""
    entries = [master(template=draw(_templates)), workers(draw(st.integers(0, 12)), template=draw(_templates))]
    entries.append(parameter_servers(draw(st.integers(0, 5)), template=draw(st.none() | _templates)))
    entries = draw(st.permutations(entries))
    policy = draw(st.sampled_from(["Chief", "AnyReplica"]))
    given_spec: dict[str, Any] = tfjob(*entries, failurePolicy=policy)["spec"]
    return given_spec


@given(spec=specs(), restart_rules=st.booleans())
def test_every_replica_has_a_job_and_a_service_of_its_name_and_knows_all_the_others(
    spec: dict[str, Any], restart_rules: bool
) -> None:
    plan = plan_of(*spec["replicaSpecs"], restart_rules=restart_rules, failurePolicy=spec["failurePolicy"])
    wanted = sum(entry.get("replicas", 1) for entry in spec["replicaSpecs"])
    assert len(plan.replicas.by_name) == len(plan.replicas.all) == wanted
    assert plan.replicas.all[0] is plan.replicas.chief
    for replica in plan.replicas.all:
        job, service = build_job(plan, replica), build_service(plan, replica)
        assert job["metadata"]["name"] == service["metadata"]["name"] == replica.name
        assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
        (training,) = (each for each in job["spec"]["template"]["spec"]["containers"] if each["name"] == "tensorflow")
        (value,) = (each["value"] for each in training["env"] if each["name"] == "TF_CONFIG")
        config = json.loads(value)
        addresses = [address for role in config["cluster"].values() for address in role]
        assert sorted(addresses) == sorted(f"{name}:2222" for name in plan.replicas.by_name)
        assert config["cluster"][config["task"]["type"]][config["task"]["index"]] == f"{replica.name}:2222"


@given(spec=specs(), missing=st.sets(st.integers(0, 40)))
def test_what_is_created_is_what_is_missing(spec: dict[str, Any], missing: set[int]) -> None:
    cluster = World(decoded({"metadata": {"name": "example-job"}, "spec": spec}))
    cluster.settle()
    names = list(cluster.jobs)
    gone = {names[index % len(names)] for index in missing}
    for name in gone:
        cluster.delete_job(name)
    assert {create.name for create in cluster.actions().creates} == gone
    cluster.settle()
    assert cluster.actions() is NO_ACTIONS
