"""A job that is a gang: nothing before there is room, then everything; and all of it goes when the attempt is over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import World, running_world, world
from helpers.gangs import member_ids
from helpers.manifests import container, master, parameter_servers, pod_template, workers
from tfjob_controller.api.common.checkpointstatus import CheckpointStatus
from tfjob_controller.api.gang import (
    ADMITTED,
    BOUND,
    GANGS,
    RELEASED,
    UNSCHEDULABLE,
    WAITING,
    Gang,
    GangAnnotations,
    GangCondition,
    GangStatus,
    NodePlacement,
    Preemption,
)
from tfjob_controller.jobs.actions.model import NO_ACTIONS, Patch
from tfjob_controller.jobs.actions.planner import stop_all
from tfjob_controller.jobs.plan.gangterms import (
    ALWAYS,
    OFF,
    ON_REQUEST,
    GangPolicy,
)
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS
from tfjob_controller.kinds.tfjob.plan import gang_problem
from tfjob_controller.util.timestamps import format_time

REQUESTED = GangPolicy(ON_REQUEST, "gang-scheduler")
PINNED = GangPolicy(ON_REQUEST, "gang-scheduler", pins=True)
NAME = "example-job-a6no"


def gang_world(*replica_specs: Any, gangs: GangPolicy = REQUESTED, **gang: Any) -> World:
    made = world(*(replica_specs or (master(), workers(2))), gang={"enabled": True, **gang})
    made.gangs = gangs
    return made


def gang_of(cluster: World) -> Gang:
    assert cluster.gang is not None
    return cluster.gang


def says(cluster: World, phase: str, **status: Any) -> None:
    """The gang scheduler writes a status."""
    gang = gang_of(cluster)
    cluster.gang = replace(gang, status=replace(gang.status, phase=phase, **status))


def admit(cluster: World, *members: str, node: str = "n1") -> None:
    """All members, or these, on one node."""
    gang = gang_of(cluster)
    placement = (NodePlacement(node, members or member_ids(gang.spec)),)
    says(cluster, ADMITTED, attempt=gang.status.attempt + 1, placement=placement, position=0, message="")


def admitted_world(*replica_specs: Any, gangs: GangPolicy = REQUESTED, **gang: Any) -> World:
    cluster = gang_world(*replica_specs, gangs=gangs, **gang)
    cluster.settle()
    admit(cluster)
    cluster.settle()
    return cluster


def bound_world(*replica_specs: Any, **gang: Any) -> World:
    cluster = admitted_world(*replica_specs, **gang)
    cluster.all_run()
    says(cluster, BOUND)
    cluster.settle()
    return cluster


def scheduled(cluster: World) -> tuple[str, str, str]:
    (found,) = [each for each in cluster.job.status.conditions if each.type == "Scheduled"]
    return found.status, found.reason, found.message


def labels(cluster: World, replica: str) -> Mapping[str, str]:
    """The gang's labels of a child Job, without their prefix."""
    prefix = "scheduling.kubeflow.org/"
    own = cluster.jobs[cluster.name(replica)].metadata.labels
    return {name.removeprefix(prefix): value for name, value in own.items() if name.startswith(prefix)}


# Which jobs


@pytest.mark.parametrize(
    ("which", "enabled", "is_gang"),
    [
        (OFF, True, False),
        (OFF, None, False),
        (ON_REQUEST, True, True),
        (ON_REQUEST, None, False),
        (ON_REQUEST, False, False),
        (ALWAYS, None, True),
        (ALWAYS, False, False),
    ],
)
def test_flag_and_job_say_whether_it_is_a_gang(which: str, enabled: bool | None, is_gang: bool) -> None:
    cluster = world(gang={} if enabled is None else {"enabled": enabled})
    cluster.gangs = GangPolicy(which, "gang-scheduler")
    assert (cluster.plan.scheduling.gang is not None) == is_gang
    assert ("Gang/" + NAME in [f"{each.resource.kind}/{each.name}" for each in cluster.actions().creates]) == is_gang


def test_a_job_that_requests_a_gang_without_support_gets_an_event_and_runs() -> None:
    cluster = gang_world(gangs=GangPolicy(OFF))
    cluster.settle()
    assert len(cluster.jobs) == 3
    assert scheduled(cluster)[:2] == ("False", "GangSchedulingOff")
    assert [event.type for event in cluster.events if event.reason == "GangSchedulingOff"] == ["Warning"]


@pytest.mark.parametrize("backend", [None, BACKENDS["volcano"]], ids=["gang-scheduler", "volcano"])
def test_a_job_that_was_started_without_a_gang_goes_on_without_one(backend: Any) -> None:
    cluster = running_world()
    cluster.gangs = GangPolicy(ALWAYS, "gang-scheduler", backend=backend)
    scheduling = cluster.plan.scheduling
    assert (scheduling.gang is None) == (scheduling.pod_group is not None)
    assert cluster.actions() is NO_ACTIONS
    cluster.settle()
    assert cluster.job.status.phase == "Running"


@pytest.mark.parametrize(
    "pod_spec",
    [
        pytest.param({"tolerations": "all"}, id="no list"),
        pytest.param({"nodeSelector": {"a": 1}}, id="a number for a text"),
    ],
)
def test_a_template_that_no_node_can_be_found_for_is_refused(pod_spec: dict[str, Any]) -> None:
    job = gang_world(master(template=pod_template(container(), **pod_spec))).job
    problem = gang_problem(job.spec, REQUESTED)
    assert problem is not None
    assert problem.startswith("spec.replicaSpecs[0].template: ")
    assert gang_problem(job.spec, GangPolicy(OFF)) is None


def test_an_invalid_quantity_is_refused() -> None:
    template = pod_template(container(resources={"limits": {"cpu": "much"}}))
    problem = gang_problem(gang_world(master(), workers(template=template)).job.spec, REQUESTED)
    assert problem is not None
    assert problem.startswith("spec.replicaSpecs[1].template: ")


# The Gang


def test_the_gang_says_what_runs_together_and_what_decides_where() -> None:
    resources = {"requests": {"cpu": "500m"}, "limits": {"nvidia.com/gpu": 1}}
    template = pod_template(container(resources=resources), nodeSelector={"disk": "fast"})
    cluster = gang_world(
        master(), workers(3, template=template), minWorkers=2, priority=7, timeoutSeconds=60, onTimeout="Fail"
    )
    cluster.sync()
    gang = gang_of(cluster)
    assert (gang.metadata.name, gang.metadata.owner_references[0].uid) == (NAME, "uid-job")
    assert [(each.name, each.count) for each in gang.spec.members] == [("master", 1), ("worker", 3)]
    worker = gang.spec.members[1]
    assert worker.resources == {"cpu": "500m", "nvidia.com/gpu": "1"}
    assert worker.node_selector == {"disk": "fast"}
    assert (gang.spec.min_members, gang.spec.priority) == ({"worker": 2}, 7)
    assert (gang.spec.timeout_seconds, gang.spec.on_timeout, gang.spec.suspend) == (60, "Fail", False)


def test_nothing_but_the_gang_is_created_before_there_is_capacity() -> None:
    cluster = gang_world(master(), workers(2), parameter_servers(1))
    cluster.settle()
    assert cluster.created == [f"Gang/{NAME}"]
    says(cluster, WAITING, message="needs 4 * cpu: 1", position=3)
    cluster.settle()
    assert cluster.created == [f"Gang/{NAME}"]
    assert cluster.job.status.phase == "Creating"
    assert cluster.job.status.start_time is None


def test_once_admitted_everything_is_created_at_once() -> None:
    cluster = gang_world(master(), workers(2), parameter_servers(1))
    cluster.settle()
    admit(cluster)
    assert len(cluster.actions().creates) == 1 + 2 * 4
    cluster.settle()
    assert labels(cluster, "worker-1") == {"gang": NAME, "member": "worker-1", "attempt": "1"}
    assert cluster.actions() is NO_ACTIONS
    assert cluster.job.status.start_time is not None


def body_of(cluster: World, replica: str) -> dict[str, Any]:
    return next(each.body for each in cluster.actions().creates if each.name == cluster.name(replica))


def test_pods_name_their_member_and_the_gang_scheduler_whatever_their_template_says() -> None:
    cluster = gang_world(master(template=pod_template(container(), schedulerName="mine")), workers(1))
    cluster.settle()
    admit(cluster)
    for replica in ("master-0", "worker-0"):
        template = body_of(cluster, replica)["spec"]["template"]
        assert template["spec"]["schedulerName"] == "gang-scheduler"
        assert template["metadata"]["labels"]["scheduling.kubeflow.org/member"] == replica
        assert "affinity" not in template["spec"]


def test_a_gang_that_is_pinned_keeps_its_scheduler() -> None:
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in ("a", "b")]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    affinity = {"nodeAffinity": required, "podAffinity": {"x": 1}}
    template = pod_template(container(), schedulerName="mine", affinity=affinity)
    cluster = gang_world(master(template=template), workers(1), gangs=PINNED)
    cluster.settle()
    admit(cluster, node="node-7")
    here = [{"key": "metadata.name", "operator": "In", "values": ["node-7"]}]
    spec = body_of(cluster, "master-0")["spec"]["template"]["spec"]
    assert spec["schedulerName"] == "mine"
    assert spec["affinity"]["podAffinity"] == {"x": 1}
    pinned = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert pinned == [{**term, "matchFields": here} for term in terms]
    spec = body_of(cluster, "worker-0")["spec"]["template"]["spec"]
    assert "schedulerName" not in spec
    assert spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == {
        "nodeSelectorTerms": [{"matchFields": here}]
    }


def test_a_pinned_replica_that_has_got_another_node_is_recreated_unless_it_runs() -> None:
    cluster = admitted_world(master(), workers(2), gangs=PINNED)
    cluster.runs("master-0")
    says(cluster, ADMITTED, placement=(NodePlacement("n2", ("master-0", "worker-0", "worker-1")),))
    # In the foreground: none of them runs at two places.
    assert sorted((each.name, each.foreground) for each in cluster.actions().deletes) == [
        (cluster.name("worker-0"), True),
        (cluster.name("worker-1"), True),
    ]
    cluster.settle()
    assert labels(cluster, "worker-0")["pinned-to"] != labels(cluster, "master-0")["pinned-to"]
    assert cluster.actions() is NO_ACTIONS


def test_a_partly_placed_gang_creates_only_its_placed_members_and_later_the_others() -> None:
    cluster = gang_world(master(), workers(3), minWorkers=1)
    cluster.settle()
    admit(cluster, "master-0", "worker-0")
    cluster.settle()
    assert sorted(cluster.jobs) == [cluster.name("master-0"), cluster.name("worker-0")] == sorted(cluster.services)
    assert scheduled(cluster)[2] == "There is capacity for 2 of 4 replicas"
    says(cluster, BOUND, placement=(NodePlacement("n1", ("master-0", "worker-0", "worker-1")),))
    cluster.settle()
    assert cluster.name("worker-1") in cluster.jobs
    assert labels(cluster, "worker-1")["attempt"] == "1"


def told(cluster: World, replica: str) -> dict[str, list[str]]:
    """The replicas that the TF_CONFIG of this one names, which is about to be created; as people call them."""
    (trained,) = body_of(cluster, replica)["spec"]["template"]["spec"]["containers"]
    (value,) = [each["value"] for each in trained["env"] if each["name"] == "TF_CONFIG"]
    ids = {each.name: each.id for each in cluster.plan.replicas.all}
    named = json.loads(value)["cluster"]
    return {role: [ids[address.partition(":")[0]] for address in addresses] for role, addresses in named.items()}


def test_tf_config_of_a_partly_placed_gang_names_placed_workers_and_all_workers_for_servers() -> None:
    cluster = gang_world(master(), parameter_servers(1), workers(4), minWorkers=1)
    cluster.settle()
    admit(cluster, "master-0", "ps-0", "worker-0", "worker-1")
    all_workers = ["worker-0", "worker-1", "worker-2", "worker-3"]
    assert told(cluster, "master-0") == {"master": ["master-0"], "ps": ["ps-0"], "worker": all_workers[:2]}
    assert told(cluster, "worker-1") == told(cluster, "master-0")
    assert told(cluster, "ps-0")["worker"] == all_workers
    cluster.settle()
    placed = ("master-0", "ps-0", "worker-0", "worker-1", "worker-2")
    says(cluster, BOUND, placement=(NodePlacement("n1", placed),))
    assert told(cluster, "worker-2")["worker"] == all_workers[:3]


def test_tf_config_keeps_the_place_of_a_worker_that_has_succeeded() -> None:
    cluster = bound_world(master(), workers(4), minWorkers=1)
    cluster.exits("worker-1", 0)
    cluster.settle()
    says(cluster, WAITING, placement=())
    cluster.settle()
    admit(cluster, "master-0", "worker-0", "worker-1")
    assert told(cluster, "worker-2")["worker"] == ["worker-0", "worker-1", "worker-2"]


def test_the_gang_of_an_invalid_job_is_released_once() -> None:
    gang = gang_of(admitted_world())
    let_go = replace(gang, spec=replace(gang.spec, suspend=True))
    assert stop_all((), (gang,), ()).patches == (Patch(GANGS, gang.metadata.name, {"spec": {"suspend": True}}),)
    assert not stop_all((), (let_go,), ())


# Back to the queue


def test_back_in_the_queue_all_child_jobs_go_and_their_services_stay() -> None:
    cluster = bound_world()
    says(cluster, WAITING, placement=())
    deletes = cluster.actions().deletes
    assert sorted(each.name for each in deletes) == sorted(cluster.jobs)
    assert all(each.foreground and each.uid for each in deletes)
    cluster.settle()
    assert cluster.jobs == {}
    assert len(cluster.services) == 3
    assert cluster.job.status.phase == "Creating"
    assert cluster.job.status.start_time is None
    assert cluster.job.status.restarts == 0


def test_the_next_attempt_begins_only_when_the_last_ones_pods_are_gone() -> None:
    cluster = bound_world()
    says(cluster, WAITING, placement=())
    name = cluster.name("worker-1")
    dying = replace(
        cluster.jobs[name], metadata=replace(cluster.jobs[name].metadata, deletion_timestamp=format_time(cluster.now))
    )
    cluster.settle()
    cluster.jobs[name] = dying
    admit(cluster)
    assert cluster.actions() is NO_ACTIONS
    cluster.settle()
    assert "pods of the last attempt" in cluster.job.status.reason
    cluster.delete_job(name)
    assert len(cluster.actions().creates) == 3
    cluster.settle()
    assert {labels(cluster, each)["attempt"] for each in ("master-0", "worker-0", "worker-1")} == {"2"}


def test_a_pod_of_the_last_attempt_holds_the_next_one_up_until_it_has_ended() -> None:
    cluster = bound_world()
    name = cluster.name("worker-1")
    pods = cluster.pods[name]
    says(cluster, WAITING, placement=())
    cluster.settle()
    cluster.pods[name] = pods  # its Job is gone already
    admit(cluster)
    assert cluster.actions() is NO_ACTIONS
    cluster.pods[name] = [replace(pods[0], status=replace(pods[0].status, phase="Failed"))]
    assert len(cluster.actions().creates) == 3


def test_an_attempt_that_was_missed_is_noticed_by_its_number() -> None:
    cluster = bound_world()
    admit(cluster)
    assert not cluster.actions().creates
    assert len(cluster.actions().deletes) == 3
    cluster.settle()
    assert labels(cluster, "master-0")["attempt"] == "2"


def test_the_gang_says_when_the_last_checkpoint_was_saved() -> None:
    cluster = bound_world()
    saved = format_time(cluster.now)
    cluster.job = replace(
        cluster.job, status=replace(cluster.job.status, checkpoint=CheckpointStatus("checkpoint-7", 7, saved))
    )
    (patch,) = cluster.actions().patches
    assert (patch.resource, patch.name) == (GANGS, gang_of(cluster).metadata.name)
    assert patch.body == {"metadata": {"annotations": {"scheduling.kubeflow.org/checkpoint-time": saved}}}
    gang = gang_of(cluster)
    cluster.gang = replace(gang, metadata=replace(gang.metadata, annotations=GangAnnotations(saved)))
    assert cluster.actions() is NO_ACTIONS


# Preempted by a gang of higher priority


def preempt(cluster: World, state: str = "Requested") -> None:
    """The gang scheduler asks for all pods, or says what became of that."""
    preemption = Preemption("other/urgent", state, format_time(cluster.now))
    if state == "Preempted":
        says(cluster, WAITING, placement=(), preemption=preemption, message="needs 3 x cpu: 1", position=2)
    else:
        says(cluster, BOUND, preemption=preemption)


def condition(cluster: World, type_: str) -> tuple[str, str] | None:
    return next(((each.status, each.reason) for each in cluster.job.status.conditions if each.type == type_), None)


def test_all_pods_of_a_preempted_gang_go_in_their_grace_period_and_none_is_created() -> None:
    cluster = bound_world()
    preempt(cluster)
    deletes = cluster.actions().deletes
    assert sorted(each.name for each in deletes) == sorted(cluster.jobs)
    assert all(each.foreground for each in deletes)
    cluster.settle()
    assert cluster.jobs == {}
    assert len(cluster.services) == 3
    assert not cluster.actions().creates
    assert scheduled(cluster) == ("False", "Preempted", "preempted by other/urgent: all pods are deleted")
    assert condition(cluster, "Preempted") == ("True", "Preempted")
    assert "preempted by other/urgent" in cluster.job.status.reason
    assert [each.type for each in cluster.events if each.reason == "Preempted"] == ["Warning"]


def test_a_preempted_job_runs_again_in_its_next_attempt_without_a_restart() -> None:
    cluster = bound_world()
    cluster.exits("worker-1", 0)
    cluster.settle()
    preempt(cluster)
    cluster.settle()
    preempt(cluster, "Preempted")
    cluster.settle()
    assert scheduled(cluster)[2] == "preempted by other/urgent. needs 3 x cpu: 1 (position 2 in the queue)"
    assert condition(cluster, "Preempted") == ("True", "Preempted")
    says(cluster, WAITING, preemption=None)
    admit(cluster)
    cluster.settle()
    assert condition(cluster, "Preempted") == ("False", "GangAdmitted")
    assert sorted(cluster.jobs) == [cluster.name(each) for each in ("master-0", "worker-0", "worker-1")]
    assert labels(cluster, "master-0")["attempt"] == "2"
    assert (cluster.job.status.restarts, cluster.job.status.restart_counts) == (0, {})
    assert [each.reason for each in cluster.events].count("Preempted") == 1


def test_a_gang_whose_pods_were_not_deleted_in_time_goes_on() -> None:
    cluster = bound_world()
    preempt(cluster, "NotFollowed")
    assert cluster.actions() is NO_ACTIONS
    cluster.settle()
    assert scheduled(cluster)[:2] == ("True", "GangAdmitted")
    assert condition(cluster, "Preempted") is None


def test_a_preempted_job_waits_its_full_time_from_then_on() -> None:
    cluster = bound_world(timeoutSeconds=60, onTimeout="Fail")
    cluster.advance(3600)
    preempt(cluster)
    cluster.settle()
    cluster.advance(59)
    preempt(cluster, "Preempted")
    cluster.settle()
    assert cluster.job.status.phase == "Creating"
    cluster.advance(1)
    cluster.settle()
    assert cluster.job.status.phase == "Failed"


def test_a_job_for_which_others_are_preempted_says_so() -> None:
    cluster = gang_world()
    cluster.settle()
    conditions = (GangCondition("Scheduled", "False", "Preempting", "", format_time(cluster.now)),)
    says(cluster, WAITING, message="preempts others", position=1, conditions=conditions)
    cluster.settle()
    assert scheduled(cluster) == ("False", "Preempting", "preempts others (position 1 in the queue)")
    assert [each.type for each in cluster.events if each.reason == "Preempting"] == ["Normal"]


def resumed_world(*replica_specs: Any) -> World:
    """A bound gang that was suspended and is resumed: its Jobs are told to go, and its pods know nothing of it yet."""
    cluster = bound_world(*replica_specs)
    cluster.lingers = cluster.stops_slowly = True
    pods = dict(cluster.pods)
    cluster.change(suspend=True)
    cluster.settle()
    cluster.pods = pods
    cluster.change(suspend=False)
    cluster.settle()
    assert all(job.metadata.deletion_timestamp is not None for job in cluster.jobs.values())
    return cluster


def is_said_to_restart(cluster: World) -> bool:
    return any(each.type == "Restarting" and each.status == "True" for each in cluster.job.status.conditions)


def test_the_chief_that_succeeds_while_its_job_is_deleted_has_succeeded() -> None:
    cluster = resumed_world()
    cluster.exits("master-0", 0)
    cluster.settle()
    assert (cluster.job.status.state, cluster.job.status.reason) == ("Succeeded", "master-0 succeeded")


@pytest.mark.parametrize("late_seconds", [0, 5])
def test_a_worker_that_succeeds_while_its_job_is_deleted_does_not_run_again(late_seconds: float) -> None:
    cluster = resumed_world()
    cluster.exits("worker-0", 0)
    if late_seconds:
        cluster.advance(late_seconds)
        cluster.pod_deleted("worker-0")
    result = cluster.sync()
    assert result.is_urgent
    assert cluster.job.status.succeeded_indexes == ("worker-0",)
    cluster.reap()
    cluster.pods.clear()
    cluster.settle()
    admit(cluster)
    cluster.settle()
    assert list(cluster.jobs) == [cluster.name("master-0"), cluster.name("worker-1")]


def test_a_program_that_exits_0_because_it_was_terminated_has_not_succeeded() -> None:
    replica = "master-0"
    cluster = resumed_world()
    cluster.pod_deleted(replica)
    cluster.advance(1)
    cluster.exits(replica, 0)
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.succeeded_indexes) == ("Creating", ())
    assert not is_said_to_restart(cluster)


def test_a_parameter_server_that_ends_while_it_is_deleted_says_nothing() -> None:
    cluster = resumed_world(master(), parameter_servers(1))
    cluster.exits("ps-0", 0)
    cluster.settle()
    assert (cluster.job.status.restarts, cluster.job.status.succeeded_indexes) == (0, ())
    assert not is_said_to_restart(cluster)


def test_a_job_is_deleted_only_once_the_success_of_its_replica_is_recorded() -> None:
    cluster = bound_world(master(), workers(2))
    cluster.lingers = True
    cluster.exits("worker-0", 0, phase="Running")
    says(cluster, WAITING, placement=())
    assert cluster.name("worker-0") not in [each.name for each in cluster.actions().deletes]
    result = cluster.sync()
    assert (result.is_urgent, result.wake_after_seconds) == (True, 0.0)
    assert cluster.job.status.succeeded_indexes == ("worker-0",)
    assert [each.name for each in cluster.actions().deletes] == [cluster.name("worker-0")]


def test_a_replica_that_has_succeeded_keeps_its_job_and_gets_no_assignment_in_later_attempts() -> None:
    cluster = bound_world(master(), workers(3))
    cluster.exits("worker-0", 0)
    cluster.job_ends("worker-0", "Complete")
    cluster.settle()
    assert [each.count for each in gang_of(cluster).spec.members] == [1, 3]
    says(cluster, WAITING, placement=())
    cluster.settle()
    assert list(cluster.jobs) == [cluster.name("worker-0")]
    assert [each.count for each in gang_of(cluster).spec.members] == [1, 2]
    admit(cluster)
    cluster.settle()
    assert labels(cluster, "worker-0")["attempt"] == "1"
    assert {each: labels(cluster, each)["member"] for each in ("worker-1", "worker-2")} == {
        "worker-1": "worker-0",
        "worker-2": "worker-1",
    }
    cluster.exits("worker-1", 0)
    cluster.job_ends("worker-1", "Complete")
    cluster.settle()
    assert cluster.actions() is NO_ACTIONS
    assert [each.count for each in gang_of(cluster).spec.members] == [1, 2]


def test_a_replica_that_is_recreated_gets_its_assignment_back() -> None:
    cluster = bound_world(master(), workers(2), parameter_servers(1))
    cluster.exits("ps-0", 0)
    cluster.settle()
    assert labels(cluster, "ps-0") == {"gang": NAME, "member": "ps-0", "attempt": "1"}
    assert cluster.job.status.restarts == 1


def test_if_the_gang_is_deleted_all_unfinished_replicas_start_again_and_no_restart_is_counted() -> None:
    cluster = bound_world()
    cluster.exits("worker-1", 0)
    cluster.job_ends("worker-1", "Complete")
    cluster.settle()
    cluster.gang = None
    cluster.settle()
    assert gang_of(cluster).status == GangStatus()
    assert list(cluster.jobs) == [cluster.name("worker-1")]
    assert [each.count for each in gang_of(cluster).spec.members] == [1, 1]
    # The gang scheduler sees pods of the last attempt, and begins above it.
    says(cluster, WAITING, attempt=1)
    admit(cluster)
    cluster.settle()
    assert [labels(cluster, each)["attempt"] for each in ("master-0", "worker-0", "worker-1")] == ["2", "2", "1"]
    assert cluster.job.status.restarts == 0


def test_a_gang_whose_pods_have_all_ended_is_not_deleted() -> None:
    cluster = bound_world()
    says(cluster, RELEASED)
    assert cluster.actions() is NO_ACTIONS


# Size


def test_more_workers_wait_for_capacity_and_fewer_request_fewer_members() -> None:
    cluster = bound_world()
    cluster.change(worker_replicas=4)
    cluster.settle()
    assert [each.count for each in gang_of(cluster).spec.members] == [1, 4]
    assert len(cluster.jobs) == 3
    says(cluster, BOUND, placement=(NodePlacement("n1", member_ids(gang_of(cluster).spec)),))
    cluster.settle()
    assert len(cluster.jobs) == 5
    cluster.change(worker_replicas=1)
    cluster.settle()
    assert [each.count for each in gang_of(cluster).spec.members] == [1, 1]
    assert len(cluster.jobs) == 2


@pytest.mark.timeout(20)
def test_an_assignment_that_was_edited_to_invalid_values_costs_no_time() -> None:
    """The controller looked for a gang that is large enough to have it, one size after the other."""
    cluster = bound_world(master(), workers(3))
    (job,) = [each for name, each in cluster.jobs.items() if "worker" in name and name.endswith("-2")]
    edited = {**job.metadata.labels, "scheduling.kubeflow.org/member": "worker-987654321"}
    cluster.jobs[job.metadata.name] = replace(job, metadata=replace(job.metadata, labels=edited))
    cluster.settle()
    assert max(each.count for each in gang_of(cluster).spec.members) <= 3


# Suspend


def test_a_suspended_job_releases_its_capacity_and_queues_again() -> None:
    cluster = bound_world()
    cluster.change(suspend=True)
    cluster.settle()
    assert gang_of(cluster).spec.suspend
    assert all(job.spec.suspend for job in cluster.jobs.values())
    says(cluster, RELEASED, placement=())
    cluster.settle()
    assert len(cluster.jobs) == 3
    assert scheduled(cluster)[:2] == ("False", "NotWaiting")
    cluster.change(suspend=False)
    cluster.settle()
    assert not gang_of(cluster).spec.suspend
    assert cluster.jobs == {}
    admit(cluster)
    cluster.settle()
    assert labels(cluster, "worker-1")["attempt"] == "2"
    assert not any(job.spec.suspend for job in cluster.jobs.values())


def test_child_jobs_are_stopped_though_the_gang_is_suspended_already() -> None:
    cluster = bound_world()
    cluster.change(suspend=True)
    gang = gang_of(cluster)
    cluster.gang = replace(gang, spec=replace(gang.spec, suspend=True))
    assert sorted(each.name for each in cluster.actions().suspends) == sorted(cluster.jobs)


def test_a_gang_that_somebody_else_suspended_gives_no_assignments_until_it_is_asked_for_again() -> None:
    cluster = bound_world()
    cluster.delete_job(cluster.name("worker-1"))
    gang = gang_of(cluster)
    cluster.gang = replace(gang, spec=replace(gang.spec, suspend=True))
    actions = cluster.actions()
    assert not actions.creates
    assert [patch.body for patch in actions.patches] == [{"spec": {"suspend": None}}]


def test_a_job_that_is_created_suspended_has_no_gang_yet() -> None:
    cluster = gang_world()
    cluster.change(suspend=True)
    cluster.settle()
    assert cluster.created == []


# Words


def test_a_job_says_what_it_lacks_and_its_place_in_the_queue_whose_changes_are_no_events() -> None:
    cluster = gang_world()
    cluster.settle()
    assert scheduled(cluster)[:2] == ("False", "WaitingForScheduler")
    says(cluster, WAITING, message="needs 3 * cpu: 1", position=3)
    cluster.settle()
    message = "needs 3 * cpu: 1 (position 3 in the queue)"
    assert scheduled(cluster) == ("False", "WaitingForCapacity", message)
    assert cluster.job.status.reason == f"waits for capacity: {message}"
    says(cluster, WAITING, message="needs 3 * cpu: 1", position=2)
    cluster.settle()
    says(cluster, UNSCHEDULABLE, message="needs 300 nodes", position=0)
    cluster.settle()
    assert scheduled(cluster) == ("False", "ExceedsClusterCapacity", "needs 300 nodes")
    admit(cluster)
    cluster.settle()
    assert scheduled(cluster) == ("True", "GangAdmitted", "There is capacity for 3 of 3 replicas")
    assert cluster.job.status.reason == ""
    assert [(event.type, event.reason) for event in cluster.events if "Creating" not in event.note] == [
        ("Normal", "WaitingForCapacity"),
        ("Warning", "ExceedsClusterCapacity"),
        ("Normal", "GangAdmitted"),
    ]


# Time


def waited(on_timeout: str) -> World:
    cluster = gang_world(timeoutSeconds=60, onTimeout=on_timeout)
    cluster.settle()
    says(cluster, WAITING, message="needs room")
    assert cluster.settle().wake_after_seconds == 60
    cluster.advance(59)
    assert cluster.settle().wake_after_seconds == 1
    assert scheduled(cluster)[1] == "WaitingForCapacity"
    cluster.advance(1)
    return cluster


def test_a_job_that_has_waited_too_long_may_wait_on() -> None:
    cluster = waited("Wait")
    assert cluster.settle().wake_after_seconds is None
    assert scheduled(cluster) == ("False", "TimedOut", "No capacity within 60 s: needs room")
    assert [event.type for event in cluster.events if event.reason == "TimedOut"] == ["Warning"]
    admit(cluster)
    cluster.settle()
    assert len(cluster.jobs) == 3


def test_a_job_that_has_waited_too_long_may_fail_and_its_gang_is_released() -> None:
    cluster = waited("Fail")
    cluster.settle()
    assert cluster.job.status.phase == "Failed"
    assert cluster.job.status.reason == "TimedOut: No capacity within 60 s: needs room"
    assert gang_of(cluster).spec.suspend
    assert cluster.created == [f"Gang/{NAME}"]


def test_a_job_that_has_waited_too_long_may_be_suspended_and_has_its_full_time_again() -> None:
    cluster = waited("Suspend")
    assert cluster.sync().suspend_job
    assert cluster.sync().suspend_job  # until it is
    cluster.change(suspend=True)
    assert not cluster.settle().suspend_job
    assert scheduled(cluster)[1] == "TimedOut"
    assert gang_of(cluster).spec.suspend
    cluster.advance(1000)
    cluster.change(suspend=False)
    result = cluster.settle()
    assert (result.suspend_job, result.wake_after_seconds) == (False, 60)


def test_back_in_the_queue_a_job_has_its_full_time_again() -> None:
    cluster = bound_world(timeoutSeconds=60, onTimeout="Fail")
    cluster.advance(1000)
    says(cluster, WAITING, placement=(), queued_time="2026-01-01T00:00:00Z")
    assert cluster.settle().wake_after_seconds == 60


# The end


def test_the_gang_of_a_job_that_ends_is_left_to_its_scheduler_if_it_is_bound() -> None:
    cluster = bound_world()
    cluster.exits("master-0", 0)
    cluster.settle()
    assert cluster.job.status.phase == "Done"
    assert not gang_of(cluster).spec.suspend


def test_a_gang_that_a_user_put_into_a_queue_stays_there() -> None:
    cluster = gang_world()
    cluster.settle()
    gang = gang_of(cluster)
    cluster.gang = replace(gang, spec=replace(gang.spec, queue="night"))
    assert cluster.actions() is NO_ACTIONS


@pytest.mark.parametrize(("most", "kept"), [(3, 4), (6, 6)], ids=["less than is wanted", "more"])
def test_the_most_that_a_user_put_into_a_gang_stays_but_is_no_less_than_what_is_wanted(most: int, kept: int) -> None:
    cluster = bound_world()
    gang = gang_of(cluster)
    cluster.gang = replace(gang, spec=replace(gang.spec, max_members={"worker": most}))
    cluster.change(worker_replicas=4)
    cluster.settle()
    assert gang_of(cluster).spec.max_members == {"worker": kept}
