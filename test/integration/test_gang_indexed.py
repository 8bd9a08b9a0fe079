"""Gangs whose pods are those of one plain Indexed Job, on a real cluster: nothing here knows TFJobs or TrainJobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.cluster import Cluster, new_token, write_kubeconfig
from helpers.gangowner import GANGS, Owner, pod
from helpers.gangscheduler import running_gang_scheduler
from helpers.kubectl import Kubectl
from helpers.poll import eventually
from helpers.renderings import SYSTEM, of_kind, render_overlay
from helpers.rights import Right, await_rights, forbidden
from localcluster.gangscheduler import NAME
from tfjob_controller.api.gang import PLACEMENT_GATE

pytestmark = pytest.mark.cluster

PREFIX = "scheduling.kubeflow.org"
JOBS = "/apis/batch/v1/namespaces/gangs/jobs"
PODS = "/api/v1/namespaces/gangs/pods"
POLICY_KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
RIGHTS_KINDS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")

Object = dict[str, Any]


def indexed_job(name: str, attempt: int, count: int, **spec: Any) -> Object:
    """A Job of `count` pods of a gang. They differ in nothing but their index."""
    labels = {f"{PREFIX}/gang": name, f"{PREFIX}/attempt": str(attempt), f"{PREFIX}/member-kind": "node"}
    template = pod("unnamed", "1", labels, scheduler=NAME)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "template": {
                "metadata": {"labels": labels},
                "spec": {**template["spec"], "restartPolicy": "Never", **spec},
            },
        },
    }


def placed(status: Object) -> dict[str, str]:
    return {member: each["node"] for each in status["placement"] for member in each["members"]}


def test_an_indexed_job_is_bound_where_placed_and_is_resized_at_its_highest_indexes(
    gang_scheduling: Cluster,
) -> None:
    api = gang_scheduling.api
    owner = Owner(api, "gangs")
    owner.submit("elastic", node=4)
    status = owner.await_phase("elastic", "Admitted")
    api.create(JOBS, indexed_job("elastic", status["attempt"], 4))
    owner.await_phase("elastic", "Bound", 30)
    assert owner.nodes("elastic") == placed(status)

    def resize(count: int) -> None:
        members = [{"name": "node", "count": count, "resources": {"cpu": "1"}, "indexed": True}]
        api.patch(f"{GANGS.format('gangs')}/elastic", {"spec": {"members": members}})
        api.patch(f"{JOBS}/elastic", {"spec": {"completions": count, "parallelism": count}})
        members_now = [f"node-{index}" for index in range(count)]
        # Before anybody has seen the change, the old pods are where the old placement has them.
        eventually(lambda: sorted(owner.nodes("elastic")) == sorted(placed(owner.status("elastic"))) == members_now)
        eventually(lambda: owner.nodes("elastic") == placed(owner.status("elastic")))

    for count in (2, 4):
        resize(count)
        assert {owner.nodes("elastic")[member] for member in ("node-0", "node-1")} == {
            placed(status)[member] for member in ("node-0", "node-1")
        }


@pytest.fixture
def affinity(gang_cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of the gang scheduler of the overlay `gang-affinity`, under its admission policies."""
    kubectl = Kubectl(gang_cluster.kubeconfig, tmp_path / "cache", SYSTEM)
    rendered = render_overlay(kubectl, "gang-affinity")
    shipped = [each for each in of_kind(rendered, *RIGHTS_KINDS, *POLICY_KINDS) if "tfjob-controller" not in str(each)]
    kubectl.must("apply", "--server-side", "-f", "-", manifest=yaml.safe_dump_all(shipped))
    token = new_token(gang_cluster.api, SYSTEM, NAME)
    await_rights(gang_cluster.api, token, "gangs", Right("", "pods", "patch"))
    yield write_kubeconfig(gang_cluster, token, tmp_path / "kubeconfig")
    cluster_wide = [each for each in shipped if each["kind"] not in ("Namespace", "ServiceAccount")]
    kubectl.must("delete", "-f", "-", manifest=yaml.safe_dump_all(cluster_wide))


def test_in_mode_affinity_gated_pods_are_pinned_one_by_one_and_the_default_scheduler_binds_them(
    gang_cluster: Cluster, affinity: Path
) -> None:
    api = gang_cluster.api
    owner = Owner(api, "gangs")
    gated = {"schedulerName": "default-scheduler", "schedulingGates": [{"name": PLACEMENT_GATE}]}
    with running_gang_scheduler(affinity, mode="affinity"):
        owner.submit("pinned", node=6)
        status = owner.await_phase("pinned", "Admitted")
    # None runs while the pods are created: a new one finds all that is left.
    api.create(JOBS, indexed_job("pinned", status["attempt"], 6, **gated))
    eventually(lambda: len(owner.nodes("pinned")) == 6)
    labels = {f"{PREFIX}/gang": "pinned", f"{PREFIX}/member-kind": "node", f"{PREFIX}/attempt": "7"}
    for name, index in (("stranger", "0"), ("other", "17")):
        body = pod(name, "10m", {**labels, "batch.kubernetes.io/job-completion-index": index})
        api.create(PODS, {**body, "spec": {**body["spec"], **gated}})
        labels[f"{PREFIX}/attempt"] = str(status["attempt"])
    with running_gang_scheduler(affinity, mode="affinity") as scheduler:
        owner.await_phase("pinned", "Bound", 30)
        of_job = api.list(PODS, "job-name=pinned")
        nodes = {f"node-{_index(each)}": each["spec"]["nodeName"] for each in of_job}
        assert nodes == placed(status)
        assert not any(each["spec"].get("schedulingGates") for each in of_job)
        for name in ("stranger", "other"):
            assert api.get(f"{PODS}/{name}")["spec"]["schedulingGates"] == gated["schedulingGates"]
        assert forbidden(scheduler) == 0


def _index(each: Object) -> str:
    return str(each["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])
