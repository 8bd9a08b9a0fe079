"""The shipped roles of the gang scheduler are sufficient, for kube-scheduler too, and have no unnecessary verb."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.auditlog import rights_log, used_rights
from helpers.cluster import Cluster, make_node, new_service_account, new_token, own_plane, write_kubeconfig
from helpers.gangowner import SMALL
from helpers.gangscheduler import ask_bind, ask_filter, extender_url, hold_lease, running_gang_scheduler
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.poll import eventually
from helpers.rights import (
    TOO_MUCH,
    Right,
    allowed,
    await_policies,
    await_rights,
    forbidden,
    named_rights_of,
    rights_of,
    rules_in,
    without,
)
from localcluster.api import Api
from localcluster.crds import install_crds
from localcluster.faultproxy import FaultProxy, LoseAnswer, Reply
from localcluster.foreigncrds import install_provisioning_crd
from localcluster.gangscheduler import NAME
from localcluster.gangscheduler import GangScheduler as KubeScheduler
from localcluster.programs import Options
from tfjob_controller.api.gang import ATTEMPT_LABEL, GANG_LABEL, MEMBER_LABEL
from tfjob_controller.gangscheduler.status.preempted import DELETION_SECONDS
from tfjob_controller.programs.gangscheduler import GangScheduler
from tfjob_controller.util.timestamps import format_time

pytestmark = pytest.mark.cluster

RBAC = MANIFESTS / "base" / "extender" / "rbac.yaml"
PROVISIONING = MANIFESTS / "components" / "node-autoscaler" / "rbac.yaml"
POLICIES = MANIFESTS / "base" / "extender" / "admission-policies.yaml"
SCHEDULER = MANIFESTS / "base" / "extender" / "scheduler.yaml"
SYSTEM = "tfjob-system"
ACCOUNT = "extender"
# As the fixture makes them.
NAMESPACE, NODES = "gangs", ("node-a", "node-b")
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
REQUESTS = f"/apis/autoscaling.x-k8s.io/v1/namespaces/{NAMESPACE}/provisioningrequests"
GANGS = f"/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/gangs"

Object = dict[str, Any]


def shipped_rules() -> list[Object]:
    """Of the extender: the Lease is read by it, and written only by its kube-scheduler."""
    documents = [each for path in (RBAC, PROVISIONING) for each in yaml.safe_load_all(path.read_text())]
    rules: list[Object] = [rule for each in documents for rule in each.get("rules", ())]
    return without(rules, WRITES_LEASE)


# Asked for only where the same happens again.
REPEATED_EVENTS = Right("events.k8s.io", "events", "patch")
WRITES_LEASE = Right("coordination.k8s.io", "leases", "update")
RIGHTS = list(rights_of(shipped_rules()))


def lead(api: Api) -> None:
    """As the kube-scheduler beside the gang scheduler does, again and again."""
    hold_lease(api, NAMESPACE, NAME, socket.gethostname())


class Play:
    """A gang of one in which the gang scheduler uses every right that it has; this plays owner and kube-scheduler.

    kube-scheduler does not like the first node, so that the gang moves (`goes_on`, again and again).
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._disliked = ""
        member = {"name": "worker", "count": 1, "resources": {"cpu": "1"}}
        gang = {"apiVersion": "scheduling.kubeflow.org/v1alpha1", "kind": "Gang", "metadata": {"name": "one"}}
        api.create(GANGS, {**gang, "spec": {"members": [member]}})
        # It asks a node autoscaler for nodes, until it is suspended.
        large = {**gang, "metadata": {"name": "large"}, "spec": {"members": [{**member, "count": 100}]}}
        api.create(GANGS, large)

    def withdraws(self) -> bool:
        """The large gang is suspended once it has asked for nodes."""
        if self._api.list(REQUESTS):
            self._api.patch(f"{GANGS}/large", {"spec": {"suspend": True}})
            return True
        return False

    def goes_on(self, scheduler: GangScheduler) -> str:
        """The gang's phase."""
        status = self._api.get(f"{GANGS}/one").get("status", {})
        if status.get("phase") == "Admitted":
            pod = self._pod(status["attempt"])
            node = status["placement"][0]["node"]
            self._disliked = self._disliked or node
            if ask_filter(scheduler, pod, [each for each in NODES if each != self._disliked]):
                ask_bind(scheduler, pod, node)
            else:
                rejected = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                self._api.patch(f"{PODS}/one/status", {"status": {"conditions": [rejected]}})
        return str(status.get("phase", ""))

    def comes_and_goes(self) -> None:
        """The gang is suspended as soon as it is admitted, and resumed: the same events again and again."""
        phase = self._api.get(f"{GANGS}/one").get("status", {}).get("phase")
        if phase in ("Admitted", "Released"):
            self._api.patch(f"{GANGS}/one", {"spec": {"suspend": phase == "Admitted"}})

    def goes_to_stay(self) -> None:
        """The gang is resumed, and not suspended again."""
        self._api.patch(f"{GANGS}/one", {"spec": {"suspend": False}})

    def leaves(self) -> None:
        """The gang was asked to leave more than a minute ago, and its owner has not followed."""
        time = format_time(datetime.now(UTC) - timedelta(seconds=DELETION_SECONDS + 1))
        preemption = {"by": f"{NAMESPACE}/other", "state": "Requested", "time": time}
        self._api.patch(f"{GANGS}/one/status", {"status": {"preemption": preemption}})

    def node(self) -> tuple[str, str]:
        """The node that the pod is on, and the one that was not liked."""
        return self._api.get(f"{PODS}/one")["spec"].get("nodeName", ""), self._disliked

    def _pod(self, attempt: int) -> Object:
        labels = {GANG_LABEL: "one", MEMBER_LABEL: "worker-0", ATTEMPT_LABEL: str(attempt)}
        container = {"name": "main", "image": "localhost/none", "resources": {"requests": {"cpu": "1"}}}
        spec = {"schedulerName": "nobody", "containers": [container]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "labels": labels}, "spec": spec}
        self._api.create_if_missing(PODS, body)
        return self._api.get(f"{PODS}/one")


def obstacles(proxy: FaultProxy) -> None:
    """What makes it read a Gang and a pod: a status and a Binding of which it does not learn how they ended."""
    proxy.next(LoseAnswer(), method="PATCH", path="/gangs/one/status")
    proxy.next(Reply(500), method="POST", path="/pods/one/binding")


@pytest.fixture
def audited_cluster() -> Iterator[tuple[Cluster, Path]]:
    """A control plane of this test's own, with the two nodes and the namespace; its audit log of the gang scheduler."""
    with (
        rights_log(f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}") as (log, flags),
        own_plane("audited", Options(apiserver_flags=flags)) as cluster,
    ):
        install_crds(cluster.api)
        install_provisioning_crd(cluster.api)
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for name in NODES:
            make_node(cluster.api, name, SMALL)
        yield cluster, log


def test_the_shipped_rights_are_enough_and_every_single_one_is_used(
    audited_cluster: tuple[Cluster, Path], tmp_path: Path
) -> None:
    """A right that has never allowed a request could be taken away, and nobody would miss it."""
    cluster, log = audited_cluster
    api = cluster.api
    token = new_service_account(api, NAMESPACE, ACCOUNT, shipped_rules())
    await_rights(api, token, NAMESPACE, RIGHTS[0])
    with FaultProxy(cluster.own.server) as proxy:
        # Servers before 1.34, or without a watch cache, know no streaming lists: then it takes plain ones.
        proxy.next(Reply(422, "Invalid"), path="sendInitialEvents", times=10**6)
        obstacles(proxy)
        play = Play(api)
        lead(api)
        follows: dict[str, Any] = {"leader_lease_namespace": NAMESPACE, "leader_lease_name": NAME}
        follows |= {"preemption": "on", "queue_order": "fair"}
        follows |= {"provisioning_class": "played", "provision_after": 0.1}
        with running_gang_scheduler(proxy.kubeconfig(tmp_path, token), ready=False, **follows) as scheduler:

            def repeats_events() -> bool:
                lead(api)
                play.comes_and_goes()
                return REPEATED_EVENTS in used_rights(log)

            def bound() -> bool:
                lead(api)
                return play.goes_on(scheduler) == "Bound"

            eventually(repeats_events)
            eventually(play.withdraws)
            play.goes_to_stay()
            eventually(bound)
            play.leaves()
            eventually(lambda: not set(RIGHTS) - used_rights(log))
            assert forbidden(scheduler) == 0
            node, disliked = play.node()
            assert node
            assert node != disliked


def _has_what_it_claims(api: Api, token: str) -> None:
    """The account may do what the manifest says and what Kubernetes gives to its own scheduler: not one verb more."""
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    lent = [api.get(f"{roles}/system:{each}-scheduler")["rules"] for each in ("kube", "volume")]
    documents = [each for each in yaml.safe_load_all(RBAC.read_text()) if each]
    (everywhere,) = [each["rules"] for each in documents if each["kind"] == "ClusterRole"]
    claimed = {right for rules in (everywhere, *lent) for right in named_rights_of(rules)}
    at_home = set(named_rights_of(rules_in(RBAC)))
    assert allowed(api, token, NAMESPACE) == claimed
    assert allowed(api, token, SYSTEM) == claimed | at_home
    assert {str(right) for right, _ in claimed | at_home} & {*TOO_MUCH} == set()


def test_the_shipped_service_account_is_enough_for_both_programs(gang_cluster: Cluster, tmp_path: Path) -> None:
    """Under the shipped admission policies, which refuse nothing of this."""
    kubectl = Kubectl(gang_cluster.kubeconfig, tmp_path / "cache", SYSTEM)
    kubectl.run("create", "namespace", SYSTEM)
    kubectl.must("apply", "-f", str(RBAC), "-f", str(POLICIES))
    token = new_token(gang_cluster.api, SYSTEM, NAME)
    await_rights(gang_cluster.api, token, NAMESPACE, RIGHTS[0])
    await_rights(gang_cluster.api, token, NAMESPACE, Right("storage.k8s.io", "storageclasses", "list"))
    await_rights(gang_cluster.api, token, SYSTEM, Right("coordination.k8s.io", "leases", "create"))
    _has_what_it_claims(gang_cluster.api, token)
    target = {"apiVersion": "v1", "kind": "Node", "name": NODES[0]}
    marked = {"name": "none", "annotations": {"a": "b"}}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": marked, "target": target}
    await_policies(kubectl, NAME, f"{PODS}/none/binding", binding)
    kubeconfig = write_kubeconfig(gang_cluster, token, tmp_path / "kubeconfig")
    play = Play(gang_cluster.api)
    # The namespace is a flag in the manifest.
    election = yaml.safe_load(SCHEDULER.read_text())["leaderElection"] | {"resourceNamespace": SYSTEM}
    follows = {"leader_lease_namespace": SYSTEM, "leader_lease_name": election["resourceName"]}
    with running_gang_scheduler(kubeconfig, **follows) as scheduler:
        extender = extender_url(scheduler)
        with KubeScheduler(gang_cluster.own, extender, kubeconfig=kubeconfig, leader_election=election):
            gang_cluster.api.create(PODS, _foreign(gang_cluster.api))
            eventually(lambda: gang_cluster.api.get(f"{PODS}/foreign")["spec"].get("nodeName"))
            eventually(lambda: play.goes_on(scheduler) == "Bound")
        assert forbidden(scheduler) == 0
    log = (gang_cluster.own.logs / f"{NAME}.log").read_text()
    assert "forbidden" not in log, [line for line in log.splitlines() if "forbidden" in line][:5]
    kubectl.must("delete", "-f", str(POLICIES))


def _foreign(api: Api) -> Object:
    """A pod of no gang, which kube-scheduler brings through the extender by itself, after it has bound its volume."""
    waits = {"metadata": {"name": "waits"}, "provisioner": "none", "volumeBindingMode": "WaitForFirstConsumer"}
    api.create("/apis/storage.k8s.io/v1/storageclasses", waits)
    common = {"storageClassName": "waits", "accessModes": ["ReadWriteOnce"]}
    capacity: Object = {"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/none"}}
    api.create("/api/v1/persistentvolumes", {"metadata": {"name": "foreign"}, "spec": {**common, **capacity}})
    claim = {"metadata": {"name": "foreign"}, "spec": {**common, "resources": {"requests": {"storage": "1Gi"}}}}
    api.create(PODS.replace("/pods", "/persistentvolumeclaims"), claim)
    container = {"name": "main", "image": "localhost/none", "resources": {"requests": {"cpu": "1"}}}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "foreign"}}]
    spec = {"schedulerName": NAME, "containers": [container], "volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign"}, "spec": spec}
