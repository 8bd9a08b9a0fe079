"""The shipped roles are sufficient for everything that the controller does, and have no unnecessary verb."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.auditlog import rights_log, used_rights
from helpers.cluster import Cluster, new_namespace, new_token, own_plane
from helpers.controller import Jobs, running_controller
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.manifests import tfjob
from helpers.poll import eventually
from helpers.rights import (
    RBAC,
    TOO_MUCH,
    Play,
    Right,
    allowed,
    await_policies,
    await_rights,
    forbidden,
    named_rights_of,
    rights_of,
    rules_in,
    shipped_rules,
    without,
)
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from localcluster.crds import install_crds
from localcluster.fakekubelet import FakeKubelet
from localcluster.faultproxy import FaultProxy, Reply
from localcluster.programs import Options
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.kube.meta import Resource
from tfjob_controller.programs.manager import Manager

pytestmark = pytest.mark.cluster

SYSTEM = "tfjob-system"
POLICIES = MANIFESTS / "base" / "admission" / "controller-policies.yaml"
NAME = "tfjob-controller"
# Asked for only where the admission plugin is on that `strict` has.
FINALIZERS = [Right("kubeflow.org", f"{plural}/finalizers", "update") for plural in ("tfjobs", "trainjobs")]
# Renewed often, so that the right to do it is soon missed, and lost late, however slow the machine.
LEADS: dict[str, Any] = {
    "autoscaling": "on",
    "leader_elect": True,
    "leader_elect_lease_duration": 90.0,
    "leader_elect_renew_deadline": 60.0,
    "leader_elect_retry_period": 0.2,
}
# Asked for only where the same happens again.
REPEATED_EVENTS = Right("events.k8s.io", "events", "patch")
RIGHTS = [right for right in rights_of(shipped_rules()) if right not in FINALIZERS]


@pytest.fixture
def strict() -> Iterator[tuple[Cluster, Path]]:
    """A control plane which asks for the right to block an owner's deletion, as OpenShift does; its audit log."""
    admission = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
    with (
        rights_log(f"system:serviceaccount:{SYSTEM}:{NAME}") as (log, flags),
        own_plane("strict", Options(apiserver_flags=(admission, *flags))) as cluster,
    ):
        yield cluster, log


def test_the_shipped_rights_are_enough_for_everything_and_every_single_one_is_used(
    strict: tuple[Cluster, Path], tmp_path: Path
) -> None:
    """A right that has never allowed a request could be taken away, and nobody would miss it.

    The shipped admission policies refuse nothing of all this.
    """
    cluster, log = strict
    kubectl = Kubectl(cluster.kubeconfig, tmp_path / "cache", SYSTEM)
    install_crds(cluster.api)
    kubectl.must("create", "namespace", SYSTEM)
    kubectl.must("apply", "-f", str(POLICIES))
    for name in ("service-account", "controller-role", "leader-role"):
        kubectl.must("apply", "--namespace", SYSTEM, "-f", str(RBAC / f"{name}.yaml"))
    namespace = new_namespace(cluster.api)
    token = new_token(cluster.api, SYSTEM, NAME)
    await_rights(cluster.api, token, namespace, RIGHTS[0])
    await_rights(cluster.api, token, SYSTEM, Right("coordination.k8s.io", "leases", "create"))
    _has_what_it_claims(cluster.api, token, namespace)
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nobodys"}}
    await_policies(kubectl, NAME, f"/api/v1/namespaces/{namespace}/configmaps", config_map)
    play = Play(Jobs(cluster.api, namespace))
    play.prepare()
    leads = {**LEADS, "leader_elect_lease_namespace": SYSTEM}
    kubelet = FakeKubelet(cluster.api, namespace=namespace, behaviour=play.behaviour)
    with FaultProxy(cluster.own.server) as proxy, kubelet:
        # Servers before 1.34, or without a watch cache, know no streaming lists: then it takes plain ones.
        proxy.next(Reply(422, "Invalid"), path="sendInitialEvents", times=10**6)
        with running_controller(proxy.kubeconfig(tmp_path, token), "", **leads) as manager:
            _to_the_end(play, log)
            eventually(lambda: jobs_workers(play, "wished") == 1)
            eventually(lambda: unused(log) == set())
            assert forbidden(manager) == 0
            # The rights that only this server asks for.
            for right, kind, manifest in zip(FINALIZERS, (TFJOBS, TRAINJOBS), (tfjob(), trainjob()), strict=True):
                _miss(cluster.api, manager, right, kind, manifest)


def _has_what_it_claims(api: Api, token: str, namespace: str) -> None:
    """Whatever else is bound to anybody: the account may do what the manifests say, and not one verb more."""
    everywhere = set(named_rights_of(rules_in(RBAC / "controller-role.yaml")))
    at_home = set(named_rights_of(rules_in(RBAC / "leader-role.yaml")))
    assert allowed(api, token, namespace) == everywhere
    assert allowed(api, token, SYSTEM) == everywhere | at_home
    assert {str(right) for right, _ in everywhere | at_home} & {*TOO_MUCH} == {"get secrets"}
    assert not any("*" in (right.group, right.resource, right.verb) for right, _ in everywhere | at_home)


def _miss(api: Api, manager: Manager, right: Right, kind: Resource, manifest: dict[str, Any]) -> None:
    """Without that right the controller is refused what such an object needs."""
    role = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}"
    rules, before = api.get(role)["rules"], forbidden(manager)
    api.patch(role, {"rules": without(rules, right)})

    def refused() -> bool:
        api.create(kind.path(new_namespace(api, "again")), manifest)
        return forbidden(manager) > before

    eventually(refused)
    api.patch(role, {"rules": rules})


def unused(log: Path) -> set[Right]:
    return set(RIGHTS) - used_rights(log)


def jobs_workers(play: Play, name: str) -> int | None:
    """How many workers its spec asks for by now, if it says so."""
    play.goes_on()
    found: int | None = play.jobs.get(name)["spec"].get("workerReplicas")
    return found


def _to_the_end(play: Play, log: Path) -> None:
    """Every job of the play ends as it must."""
    jobs = play.jobs

    def is_suspended() -> bool:
        play.goes_on()
        conditions = jobs.status("shrinking").get("conditions") or ()
        return any(each["type"] == "Suspended" and each["status"] == "True" for each in conditions)

    eventually(is_suspended)
    eventually(lambda: "exists already" in str(jobs.status("foreign").get("reason")))
    eventually(lambda: REPEATED_EVENTS in used_rights(log))
    play.relent()
    for name in ("adopted", "foreign", "shrinking"):
        eventually(lambda name=name: jobs.phase(name) == "Done", 90)  # type: ignore[misc] # bound now
    eventually(lambda: "whole" not in {each["metadata"]["name"] for each in jobs.all()})
    trained = TRAINJOBS.path(jobs.namespace)
    eventually(lambda: "trained" not in {each["metadata"]["name"] for each in jobs.api.list(trained)})
    eventually(lambda: jobs.api.get(f"{trained}/impatient")["spec"].get("suspend"))

    def state_of(name: str) -> str:
        return str(jobs.api.get(f"{trained}/{name}").get("status", {}).get("state"))

    for name in ("launched", "launched-before"):
        eventually(lambda name=name: state_of(name) == "SUCCESS")  # type: ignore[misc] # bound now
    # Events are written a moment after the status.
    told = {"SuccessfulCreate", "SuccessfulDelete", "FailedCreate", "Done"}
    eventually(lambda: {each["reason"] for each in jobs.events()} >= told)
