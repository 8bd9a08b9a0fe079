"""The pages have the messages, fields, defaults and bounds of the code, in its words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from helpers.docs import DOCS
from helpers.kubectl import MANIFESTS
from tfjob_controller.api.common.status import MAX_METRICS, Progress
from tfjob_controller.api.gang import TOO_MANY_MEMBERS
from tfjob_controller.api.kubeflowtrainer.types import MAX_NODES as MAX_KUBEFLOW_NODES
from tfjob_controller.api.kubeflowtrainer.validation import MAX_JOBS
from tfjob_controller.api.tfjob.status import ScalingStatus
from tfjob_controller.api.trainjob import types
from tfjob_controller.api.trainjob.validation import IMAGE_MISSING, STARTED_FIXED
from tfjob_controller.controller.kind import RUNTIME_TIMEOUT_SECONDS
from tfjob_controller.controller.logs.follower import MAX_FOLLOWED
from tfjob_controller.gangscheduler import bindrequests
from tfjob_controller.gangscheduler.extender import verbs
from tfjob_controller.jobs import conditions, naming, reasons, trainingjob
from tfjob_controller.jobs.frameworks.registry import BUILT_IN
from tfjob_controller.jobs.plan.gangterms import OFF, ON, RECOMMEND
from tfjob_controller.jobs.state.replica_state import NO_POD_AFTER_SECONDS
from tfjob_controller.jobs.state.restarts import BASE_SECONDS, CAP_SECONDS
from tfjob_controller.jobs.status.resizing import resize_message
from tfjob_controller.kinds.trainjob import status as trainjobstatus
from tfjob_controller.kinds.trainjob.podtemplate import NO_WORKSPACE
from tfjob_controller.options import EXTENDER_OPTIONS, ExtenderOptions, RunOptions
from tfjob_controller.scheduling import decisions, nodefilter
from tfjob_controller.scheduling.autoscaling.autoscaler import FREE_CAPACITY
from tfjob_controller.scheduling.autoscaling.elasticgang import AutoscalingPolicy

RUN, EXTENDER = RunOptions(), ExtenderOptions()
SCALING_FIELDS = ("workers", "before", "target", "reason", "done", "total")
CHANGEABLE = ("suspend", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "maxRestarts", "metrics")
LABELS = (naming.KUBEFLOW, naming.TRAIN_JOB_NAME, naming.RUNTIME_ID, naming.JOB_TYPE)
# The row of each container in the table of requests.
CONTAINERS = {
    "manager": "controller",
    "extender": "extender of the gang scheduler",
    "kube-scheduler": "its kube-scheduler",
}


def delays() -> Iterator[str]:
    for name in ("scale_down_after", "scale_up_after"):
        seconds = getattr(AutoscalingPolicy(), f"{name}_seconds")
        assert [option.default for option in EXTENDER_OPTIONS if option.field == name] == [seconds]
        yield f"`--{name.replace('_', '-')}` ({seconds:.0f} s)"


def resources_of(folder: str) -> dict[str, dict[str, Any]]:
    """Returns the requests and limits of each container of a Deployment."""
    (deployment,) = yaml.safe_load_all((MANIFESTS / "base" / folder / "deployment.yaml").read_text("utf-8"))
    containers = deployment["spec"]["template"]["spec"]["containers"]
    return {container["name"]: container["resources"] for container in containers}


def requests_and_limits() -> Iterator[str]:
    resources = resources_of("manager") | resources_of("extender")
    for name, row in CONTAINERS.items():
        memory = [resources[name][kind]["memory"] for kind in ("requests", "limits")]
        amounts = ", ".join(amount.replace("Mi", " MiB").replace("Gi", " GiB") for amount in memory)
        yield f"| {row} | {amounts} |"


EXPECTED: dict[str, list[str]] = {
    "autoscaling": [
        reasons.RESIZED,
        reasons.RESIZE_RECOMMENDED,
        reasons.OVERRIDDEN,
        reasons.PROGRESS_IGNORED,
        reasons.CHILDREN_FOLLOW,
        reasons.NONE_RECOMMENDED,
        resize_message(4, 2, "capacity for default/second-f2sa, waiting 31 s", "spec.workerReplicas", "worker"),
        resize_message(2, 3, FREE_CAPACITY, "spec.workerReplicas", "worker"),
        resize_message(2, 4, "", "spec.workerReplicas", "worker"),
        *(f"| `{mode}`" for mode in (OFF, RECOMMEND, ON)),
        *(f"`{name}`" for name in SCALING_FIELDS),
        *delays(),
    ],
    "gang-scheduling": [
        bindrequests.NOT_ADMITTED,
        bindrequests.WRONG_ATTEMPT,
        bindrequests.UNKNOWN_MEMBER,
        bindrequests.WRONG_NODE,
        bindrequests.SECOND_POD,
        bindrequests.POD_DELETED,
        bindrequests.REJECTED,
        bindrequests.NOT_COMPLETE,
        bindrequests.SUPERSEDED,
        bindrequests.STOPPING,
        verbs.NO_GANG,
        verbs.NOT_ADMITTED,
        verbs.NOT_A_MEMBER,
        verbs.OLD_ATTEMPT,
        verbs.RESERVED,
        verbs.NOT_FILTERED,
        verbs.NODE_REJECTED,
        verbs.NODE_NOT_OFFERED,
        decisions.HELD_BACK,
        nodefilter.NOT_READY,
        nodefilter.UNSCHEDULABLE,
        nodefilter.TAINTED,
        nodefilter.NOT_SELECTED,
        decisions.EXCEEDS_CLUSTER_CAPACITY,
        decisions.INVALID_RESOURCES,
        *(f"| {phase} |" for phase in ("Waiting", "Admitted", "Bound", "Released", "Unschedulable")),
    ],
    "kubeflow-trainer": [f"works, up to {MAX_KUBEFLOW_NODES:,}", f"work, up to {MAX_JOBS}."],
    "limits": [
        f"{types.MAX_NODES:,} nodes, {types.MAX_PROCS:,} processes a node, {MAX_METRICS} metrics",
        f"| logs that are followed | {MAX_FOLLOWED} at a time",
        "| a gang | 10,000 pods |",
    ],
    "sizing": [
        *requests_and_limits(),
        f"| `--qps`, `--burst` | {RUN.qps:g}, {RUN.burst} |",
        f"| `--workers` | {RUN.workers} |",
        f"| `--concurrent-writes` | {RUN.concurrent_writes} |",
        f"| `--qps`, `--burst` of the extender | {EXTENDER.qps:g}, {EXTENDER.burst} |",
        f"at most {MAX_FOLLOWED} at a time",
    ],
    "trainjob": [
        f"invalid job spec: {IMAGE_MISSING}",
        f"invalid job spec: {NO_WORKSPACE.partition(': name')[0]}",
        "spec.runtimeRef: there is no ClusterTrainingRuntime",
        f"{RUNTIME_TIMEOUT_SECONDS:.0f} seconds after the job's creation",
        f"{BASE_SECONDS} s, {2 * BASE_SECONDS} s, … up to {CAP_SECONDS} s",
        f"At most {types.MAX_NODES:,} nodes a job, {types.MAX_PROCS:,} processes a node, {MAX_METRICS} metrics",
        *(f"| `{label}` |" for label in LABELS),
        *(
            f"`{'python -m ' if '.' in command else ''}{command}`"
            for framework in BUILT_IN
            for command in framework.commands
        ),
    ],
    "troubleshooting": [
        f"no pod after {NO_POD_AFTER_SECONDS} s",
        f"for {RUNTIME_TIMEOUT_SECONDS:.0f} s after the job's creation",
    ],
}


def text_of(page: str) -> str:
    return " ".join((DOCS / f"{page}.md").read_text("utf-8").split())


@pytest.mark.parametrize("page", EXPECTED)
def test_a_page_has_the_values_of_the_code(page: str) -> None:
    text = text_of(page)
    assert [value for value in EXPECTED[page] if value not in text] == []


def test_the_documented_values_are_those_that_are_enforced() -> None:
    assert {*SCALING_FIELDS} <= {*ScalingStatus.__struct_fields__, *Progress.__struct_fields__}
    assert "10000" in TOO_MANY_MEMBERS
    for name, resources in (resources_of("manager") | resources_of("extender")).items():
        assert resources["requests"]["cpu"] == "100m", name
        assert "cpu" not in resources["limits"], name


@pytest.mark.parametrize(
    ("section", "end", "values"),
    [
        pytest.param(
            "## Status",
            "`state` of",
            [
                trainingjob.PHASE_CREATING,
                trainingjob.PHASE_RUNNING,
                trainingjob.PHASE_CLEAN_UP,
                trainingjob.PHASE_DONE,
                trainingjob.PHASE_FAILED,
            ],
            id="phases",
        ),
        pytest.param(
            "| condition |",
            "`reason` is",
            [
                conditions.CREATED,
                conditions.SCHEDULED,
                conditions.RUNNING,
                conditions.RESIZING,
                conditions.RESTARTING,
                conditions.SUSPENDED,
                conditions.SUCCEEDED,
                conditions.FAILED,
                trainjobstatus.COMPLETE,
            ],
            id="conditions",
        ),
    ],
)
def test_the_page_on_concepts_has_each_value_in_its_section(section: str, end: str, values: list[str]) -> None:
    text = text_of("concepts").partition(section)[2].partition(end)[0]
    assert [value for value in values if f"`{value}`" not in text] == []


def test_the_page_on_trainjobs_lists_the_fields_that_may_change_in_a_started_job() -> None:
    text = text_of("trainjob").partition("- Once a job has started, only")[2].partition(" may change")[0]
    assert [name for name in CHANGEABLE if name not in STARTED_FIXED or f"`{name}`" not in text] == []
