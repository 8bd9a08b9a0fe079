"""The rules of controller/snapshot.py: what counts as a job's own."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import plan_of
from helpers.kindplans import PLANS
from helpers.manifests import master, parameter_servers
from tfjob_controller.api.common.core import (
    CONFIG_MAPS,
    JOBS,
    PODS,
    SERVICES,
    BatchJob,
    ConfigMap,
    Pod,
    PodMeta,
    Service,
)
from tfjob_controller.api.gang import GANGS, Gang
from tfjob_controller.api.tfjob.types import TFJob
from tfjob_controller.controller.decoders import decode_pod
from tfjob_controller.controller.snapshot import BY_OWNER, BY_RUNTIME, Snapshots, by_runtime_label
from tfjob_controller.jobs.actions.children import build_job
from tfjob_controller.jobs.naming import POD_JOB_NAME
from tfjob_controller.jobs.plan.gangterms import ON_REQUEST, GangPolicy
from tfjob_controller.jobs.plan.model import Plan, Replica
from tfjob_controller.kinds.registry import KINDS
from tfjob_controller.kube.cache.store import Store, by_controller_uid
from tfjob_controller.kube.meta import ObjectMeta, OwnerReference

PLAN = plan_of(master(), parameter_servers(1))
OWNER = TFJob(ObjectMeta(name="example-job", namespace="team", uid="u1", creation_timestamp="2026-01-01T00:00:00Z"))
OURS = OwnerReference("kubeflow.org/v1alpha1", "TFJob", "example-job", "u1", controller=True)
CHILD = ObjectMeta(
    name="child",
    namespace="team",
    resource_version="5",
    owner_references=(OURS,),
    creation_timestamp="2026-01-01T00:00:01Z",
    labels={
        "kubeflow.org": "",
        "runtime_id": PLAN.identity.runtime_id,
        "tf_job_name": "example-job",
        "batch.kubernetes.io/job-name": "child",
    },
)


# As the Job controller makes them.
A_POD = replace(CHILD, owner_references=(OwnerReference("batch/v1", "Job", "child", "u7", controller=True),))


class Stores:
    def __init__(self) -> None:
        self.jobs: Store[BatchJob] = Store({BY_OWNER: by_controller_uid})
        self.services: Store[Service] = Store({BY_OWNER: by_controller_uid})
        self.pods: Store[Pod] = Store({BY_RUNTIME: by_runtime_label})
        self.config_maps: Store[ConfigMap] = Store()
        self.gangs: Store[Gang] = Store({BY_OWNER: by_controller_uid})
        self.snapshots = Snapshots(
            {
                JOBS: self.jobs,
                SERVICES: self.services,
                PODS: self.pods,
                CONFIG_MAPS: self.config_maps,
                GANGS: self.gangs,
            }
        )


GANG_PLAN = plan_of(master(), gang={"enabled": True}, gangs=GangPolicy(ON_REQUEST, "gang-scheduler"))
GANG = Gang(replace(CHILD, name="example-job-a6no"))


@pytest.mark.parametrize(
    ("plan", "gang", "is_ours"),
    [
        pytest.param(GANG_PLAN, GANG, True, id="the job's own"),
        pytest.param(PLAN, GANG, False, id="of a job that is none"),
        pytest.param(GANG_PLAN, Gang(replace(GANG.metadata, name="other")), False, id="of another name"),
        pytest.param(GANG_PLAN, Gang(replace(GANG.metadata, owner_references=())), False, id="nobody's"),
    ],
)
def test_the_gang_is_the_one_that_the_job_controls_under_its_name(plan: Plan, gang: Gang, is_ours: bool) -> None:
    stores = Stores()
    stores.gangs.upsert(gang)
    assert stores.snapshots.take(OWNER, plan).gang is (gang if is_ours else None)


@pytest.fixture
def stores() -> Stores:
    return Stores()


def test_children_are_keyed_by_name_and_pods_by_their_job(stores: Stores) -> None:
    stores.jobs.upsert(BatchJob(CHILD))
    stores.services.upsert(Service(CHILD))
    stores.pods.upsert(Pod(replace(A_POD, name="pod-1")))
    stores.pods.upsert(Pod(replace(A_POD, name="pod-2")))
    stores.config_maps.upsert(ConfigMap(replace(CHILD, name=PLAN.mounts.config_map)))
    observed = stores.snapshots.take(OWNER, PLAN)
    assert list(observed.jobs) == list(observed.services) == ["child"]
    assert sorted(pod.metadata.name for pod in observed.pods["child"]) == ["pod-1", "pod-2"]
    assert observed.has_config_map


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param(replace(CHILD, owner_references=()), id="nobody's"),
        pytest.param(replace(CHILD, owner_references=(replace(OURS, uid="u0"),)), id="an earlier job's of that name"),
        pytest.param(replace(CHILD, owner_references=(replace(OURS, controller=None),)), id="not controlled by it"),
    ],
)
def test_what_the_job_does_not_control_is_not_its_own(stores: Stores, meta: ObjectMeta) -> None:
    stores.jobs.upsert(BatchJob(meta))
    stores.services.upsert(Service(meta))
    stores.config_maps.upsert(ConfigMap(replace(meta, name=PLAN.mounts.config_map)))
    observed = stores.snapshots.take(OWNER, PLAN)
    assert (dict(observed.jobs), dict(observed.services), observed.has_config_map) == ({}, {}, False)


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param(replace(A_POD, creation_timestamp="2025-12-31T23:59:59Z"), id="older than the job"),
        pytest.param(replace(A_POD, namespace="other"), id="of another namespace"),
        pytest.param(replace(A_POD, labels={"runtime_id": PLAN.identity.runtime_id}), id="of no Job"),
        pytest.param(replace(A_POD, owner_references=()), id="planted with our labels"),
        pytest.param(CHILD, id="planted with our labels and the job itself as its controller"),
        pytest.param(
            replace(A_POD, owner_references=(replace(A_POD.owner_references[0], name="other"),)),
            id="made by a Job of another name than its label says",
        ),
        pytest.param(
            replace(A_POD, labels={**CHILD.labels, "tf_job_name": "copy"}), id="of a job that was copied with its id"
        ),
        pytest.param(replace(A_POD, labels={**CHILD.labels, "runtime_id": "zz99"}), id="of another RuntimeId"),
    ],
)
def test_pods_that_are_not_the_jobs(stores: Stores, meta: ObjectMeta) -> None:
    stores.pods.upsert(Pod(msgspec.convert(msgspec.to_builtins(meta), PodMeta)))
    assert stores.snapshots.take(OWNER, PLAN).pods == {}


def test_a_pod_outlives_its_deleted_job(stores: Stores) -> None:
    stores.pods.upsert(Pod(A_POD))
    assert list(stores.snapshots.take(OWNER, PLAN).pods) == ["child"]


def test_a_pod_that_its_job_left_behind_is_an_orphan_and_none_of_the_jobs(stores: Stores) -> None:
    stores.pods.upsert(Pod(replace(A_POD, owner_references=())))
    observed = stores.snapshots.take(OWNER, PLAN)
    assert (observed.pods, list(observed.orphans)) == ({}, ["child"])


def test_a_pod_of_another_jobs_child_is_not_ours_whatever_its_labels_say(stores: Stores) -> None:
    stores.jobs.upsert(BatchJob(replace(CHILD, owner_references=(replace(OURS, name="copy", uid="u9"),))))
    stores.pods.upsert(Pod(A_POD))
    assert stores.snapshots.take(OWNER, PLAN).pods == {}


def pod_as_kept(plan: Plan, replica: Replica, **metadata: object) -> Pod:
    """The pod that the Job controller makes from the template, as the cache keeps it."""
    template = build_job(plan, replica)["spec"]["template"]["metadata"]
    labels = template["labels"] | {POD_JOB_NAME: replica.job_name, "batch.kubernetes.io/job-completion-index": "0"}
    meta = {"name": "pod", "namespace": "team", "uid": "p1", "creationTimestamp": "2026-01-01T00:00:01Z"}
    return decode_pod(msgspec.json.encode({"metadata": {**meta, **metadata, "labels": labels}}))


@pytest.mark.parametrize("kind", [each.name for each in KINDS if each.children_of is None])
@pytest.mark.parametrize("is_released", [False, True])
def test_pods_of_a_deleted_job_are_known_again_whatever_kind_of_job_it_was(
    stores: Stores, kind: str, is_released: bool
) -> None:
    plan = PLANS[kind]
    for replica in plan.replicas.all:
        its_job = {"apiVersion": "batch/v1", "kind": "Job", "name": replica.job_name, "uid": "j1", "controller": True}
        pod = pod_as_kept(plan, replica, ownerReferences=[] if is_released else [its_job])
        stores.pods.upsert(replace(pod, metadata=replace(pod.metadata, name=f"pod-of-{replica.id}")))
    observed = stores.snapshots.take(OWNER, plan)
    assert set(observed.orphans if is_released else observed.pods) == {each.job_name for each in plan.replicas.all}
