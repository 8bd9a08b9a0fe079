"""What the controller's caches keep of children."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from helpers.worstobjects import owner, small_gang_objects
from tfjob_controller.api.gang import Member
from tfjob_controller.controller import decoders
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS, PodGroupRequest
from tfjob_controller.kube.meta import ObjectMeta, controller_of, key_of

OURS = owner("kubeflow.org/v1alpha1", "TFJob")
OTHERS = owner("apps/v1", "Deployment")
LABELS = {"kubeflow.org": "", "runtime_id": "ab12", "of.the/template": "x"}
CHILDREN: dict[str, Callable[[bytes], Any]] = {
    "jobs": decoders.decode_job,
    "services": decoders.decode_service,
    "config maps": decoders.decode_config_map,
    "autoscalers": decoders.decode_autoscaler,
    "gangs": decoders.decode_job_gang,
    "pod groups": decoders.decode_pod_group,
}


def body(*owners: dict[str, Any], **parts: Any) -> bytes:
    meta = {"name": "a", "namespace": "team", "uid": "u", "resourceVersion": "3", "labels": LABELS}
    return msgspec.json.encode({"metadata": {**meta, "ownerReferences": owners}, **parts})


@pytest.mark.parametrize("decode", CHILDREN.values(), ids=CHILDREN)
def test_a_jobs_child_keeps_the_labels_that_are_read_and_its_controller(decode: Callable[[bytes], Any]) -> None:
    meta = decode(body({**OTHERS, "controller": False}, OURS)).metadata
    assert meta.labels == {"kubeflow.org": "", "runtime_id": "ab12"}
    assert [each.uid for each in meta.owner_references] == ["u1"]


@pytest.mark.parametrize(
    ("decode", "owners"),
    [
        *((decode, (OTHERS,)) for decode in CHILDREN.values()),
        *((decoders.decode_job, owners) for owners in ((), (OURS | {"apiVersion": "kubeflow.organic/v1"},))),
    ],
)
def test_what_no_job_controls_leaves_its_identity(decode: Callable[[bytes], Any], owners: tuple[Any, ...]) -> None:
    found = decode(body(*owners, spec={"parallelism": 7, "minMember": 7, "maxReplicas": 7, "priority": 7}))
    assert (key_of(found), found.metadata.uid, found.metadata.resource_version) == ("team/a", "u", "3")
    assert found.metadata.labels == {}
    assert found == type(found)(found.metadata)


def test_a_pod_counts_with_a_job_as_its_controller_or_without_one() -> None:
    job = owner("batch/v1", "Job")
    assert decoders.decode_pod(body(job)).metadata.labels["runtime_id"] == "ab12"
    assert decoders.decode_pod(body()).metadata.labels["runtime_id"] == "ab12"
    assert decoders.decode_pod(body(OTHERS)).metadata.labels == {}


def test_an_owner_whose_name_is_too_long_is_nobody_that_exists() -> None:
    found = controller_of(decoders.decode_service(body(OURS | {"uid": "u" * 2000, "name": "n" * 2000})))
    assert found is not None
    assert (len(found.uid), len(found.name)) == (254, 254)
    unread = controller_of(decoders.decode_pod(body(owner("batch/v1", "Job", uid="u" * 100_000))))
    assert unread is not None
    assert (unread.kind, unread.uid) == ("", "")


def test_of_a_large_pod_the_first_containers_and_the_beginning_of_messages_are_kept() -> None:
    statuses = [
        {"name": f"c{number}", "state": {"waiting": {"reason": "InvalidImageName", "message": "m" * 10_000}}}
        for number in range(100)
    ]
    pod = decoders.decode_pod(body(status={"phase": "Pending", "containerStatuses": statuses}))
    assert [each.name for each in pod.status.container_statuses] == [
        f"c{number}" for number in range(decoders.MAX_CONTAINERS)
    ]
    waiting = pod.status.container_statuses[0].state.waiting
    assert waiting is not None
    assert len(waiting.message) == decoders.MAX_MESSAGE


def test_a_pod_keeps_what_decides_whether_its_kubelet_ended_it() -> None:
    pod = decoders.decode_pod(body(spec={"activeDeadlineSeconds": 8}, status={"startTime": "2026-01-01T00:00:00Z"}))
    assert (pod.spec.active_deadline_seconds, pod.status.start_time) == (8, "2026-01-01T00:00:00Z")


def test_indexes_are_cut_between_two_of_them() -> None:
    indexes = ",".join(str(number) for number in range(0, 100_000, 2))
    status = decoders.decode_job(body(OURS, status={"completedIndexes": indexes, "failedIndexes": indexes})).status
    assert indexes.startswith(status.completed_indexes + ",")
    assert status.failed_indexes == status.completed_indexes


@pytest.mark.parametrize("name", BACKENDS)
def test_all_that_a_back_end_requests_is_found_in_its_object_again(name: str) -> None:
    backend = BACKENDS[name]
    members = [Member(f"kind{number}", 2, {"cpu": "1"}) for number in range(16)]
    spec = backend.spec(PodGroupRequest(members, 32, 32, {"cpu": "32", "a/b": "3"}, "queue", 7, "urgent", 60))
    group = decoders.decode_pod_group(body(OURS, spec=spec, status={"phase": "Pending", "more": 1}))
    assert backend.is_satisfied(group.spec, spec)
    assert group.status == {"phase": "Pending"}
    assert isinstance(group.metadata, ObjectMeta)


@pytest.mark.parametrize("part", dict(small_gang_objects()).values(), ids=dict(small_gang_objects()))
def test_what_represents_a_gang_keeps_twelve_kilobytes_of_each_part(part: dict[str, Any]) -> None:
    data = body(OURS, **part)
    decoders.decode_pod_group(data)
    tracemalloc.start()
    try:
        kept = [decoders.decode_pod_group(data) for _ in range(10)]
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < len(kept) * 12 * 1024
    finally:
        tracemalloc.stop()


def test_messages_of_a_gangs_object_are_cut_only_if_they_are_long_together() -> None:
    conditions = [{"type": f"t{number}", "status": "True", "message": "m" * 170} for number in range(12)]
    group = decoders.decode_pod_group(body(OURS, status={"conditions": conditions}))
    assert group.status["conditions"] == conditions
