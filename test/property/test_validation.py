"""Decoding and validation hold for any object: nothing that an API server could hand out makes them fail."""

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.anyspec import GPU, anything, good_jobs, specs, templates
from helpers.examples import examples
from helpers.manifests import master, parameter_servers, tfjob, workers
from tfjob_controller.api.common.podtemplates import apply_accelerators
from tfjob_controller.api.controllerconfig import Accelerator, ControllerConfig, EnvVar, HostVolume
from tfjob_controller.api.tfjob.defaults import chief_of, replicas_of
from tfjob_controller.api.tfjob.types import CONTAINER_NAME, MAX_REPLICAS, TFJOBS, TFJob
from tfjob_controller.api.tfjob.validation import validate, validate_change
from tfjob_controller.jobs.actions.children import build_job
from tfjob_controller.kinds.tfjob.plan import build_plan
from tfjob_controller.kube.meta import ObjectMeta

CONFIG = {GPU: Accelerator((HostVolume("lib", "/a", "/b"),), (EnvVar("A", "b"),))}
# Linux' MAX_ARG_STRLEN: the longest `NAME=value` that a program can be started with, its final NUL counted.
MAX_ENVIRONMENT_STRING = 32 * 4096


def decoded(spec: Any, status: Any = None) -> TFJob:
    return TFJOBS.decode(json.dumps({"metadata": {"name": "a"}, "spec": spec, "status": status}).encode())


@settings(max_examples=examples(300))
@given(spec=specs, status=anything)
def test_any_object_is_read_judged_and_if_it_is_good_compiled(spec: Any, status: Any) -> None:
    job = decoded(spec, status)
    if validate(job) is None:
        named = msgspec.structs.replace(job, metadata=ObjectMeta(name="a", uid="u"))
        plan = build_plan(named, ControllerConfig("i", accelerators=CONFIG))
        assert plan.replicas.chief.is_chief
        assert {build_job(plan, replica)["metadata"]["name"] for replica in plan.replicas.all[:5]}


@given(spec=specs)
def test_a_good_job_has_the_chief_that_it_names(spec: Any) -> None:
    job = decoded(spec)
    if validate(job) is None:
        chief = chief_of(job.spec)
        assert 0 <= chief.replica_index < replicas_of(job.spec, chief.replica_name)


@given(manifest=good_jobs)
def test_jobs_within_the_limits_are_good_and_may_stay_as_they_are(manifest: dict[str, Any]) -> None:
    job = decoded({**manifest["spec"], "RuntimeId": "a000"})
    assert validate(job) is None
    assert validate_change(job.spec, job.spec) is None


@given(template=templates, amount=st.integers(0, 2))
def test_accelerators_are_applied_once_however_often(template: dict[str, Any], amount: int) -> None:
    job = decoded({"replicaSpecs": [{"template": template}]})
    if validate(job) is None:
        once = apply_accelerators(template, CONFIG, CONTAINER_NAME)
        assert apply_accelerators(once, CONFIG, CONTAINER_NAME) == once


def test_the_largest_job_fits_into_an_environment_variable() -> None:
    longest = tfjob(
        master(tfPort=65535), workers(MAX_REPLICAS, tfPort=65535), parameter_servers(MAX_REPLICAS, tfPort=65535)
    )
    job = msgspec.structs.replace(
        decoded({**longest["spec"], "RuntimeId": "a000"}), metadata=ObjectMeta(name="n" * 253, namespace="x", uid="u")
    )
    plan = build_plan(job, ControllerConfig())
    (value,) = plan.environment(plan.replicas.all[-1]).values()
    assert len(f"TF_CONFIG={value}") + 1 <= MAX_ENVIRONMENT_STRING
