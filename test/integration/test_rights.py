"""Least rights: what is shipped is enough for everything the controller does, and not one verb of it is too much."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, new_namespace, new_token, write_kubeconfig
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.manifests import tfjob
from helpers.poll import eventually
from helpers.rights import (
    RBAC,
    TOO_MUCH,
    Play,
    Right,
    account_with,
    allowed,
    await_rights,
    forbidden,
    named_rights_of,
    rights_of,
    rules_in,
    shipped_rules,
    without,
)
from helpers.trainmanifests import trainjob
from localcluster import process, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.fakekubelet import FakeKubelet
from localcluster.faultproxy import FaultProxy, Reply
from localcluster.programs import Options
from tfjob_controller.api.tfjob import TFJOBS
from tfjob_controller.api.trainjob import TRAINJOBS
from tfjob_controller.kube.meta import Resource
from tfjob_controller.manager import Manager

pytestmark = pytest.mark.cluster

SYSTEM = "tfjob-system"
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
RIGHTS = [right for right in rights_of(shipped_rules()) if right not in FINALIZERS]


@pytest.mark.parametrize("right", RIGHTS, ids=str)
def test_every_single_right_is_needed(
    control_plane: Cluster, kubectl: Kubectl, api: Api, namespace: str, tmp_path: Path, right: Right
) -> None:
    """Without it, the play meets a refusal; with all of them it meets none: see the other test."""
    play = Play(Jobs(api, namespace))
    play.prepare()
    with (
        account_with(api, namespace, without(shipped_rules(), right)) as token,
        FaultProxy(control_plane.own.server) as proxy,
        FakeKubelet(api, namespace=namespace, behaviour=play.behaviour),
    ):
        if right.verb == "list":
            # Servers before 1.34, or without a watch cache, know no streaming lists: then it takes plain ones.
            proxy.next(Reply(422, "Invalid"), path="sendInitialEvents", times=10**6)
        kubeconfig = proxy.kubeconfig(tmp_path, token)
        leads = {**LEADS, "leader_elect_lease_namespace": namespace}
        with running_controller(kubeconfig, namespace, ready=False, **leads) as manager:

            def refused() -> bool:
                play.goes_on()
                return forbidden(manager) > 0

            eventually(refused, 60, 0.05)


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Cluster]:
    """A control plane which asks for the right to block an owner's deletion, as OpenShift does."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    plugins = Options(apiserver_flags=("--enable-admission-plugins=OwnerReferencesPermissionEnforcement",))
    plane = ControlPlane(state.stack_dir(f"test-{owner}-{worker}-strict"), plugins, owner=process.identify(owner))
    with plane:
        yield Cluster(plane.kubeconfig, Api.from_kubeconfig(plane.kubeconfig), plane)


def test_the_shipped_rights_are_enough_for_everything(strict: Cluster, tmp_path: Path) -> None:
    kubectl = Kubectl(strict.kubeconfig, tmp_path / "cache")
    kubectl.install_crds()
    kubectl.must("create", "namespace", SYSTEM)
    for name in ("service-account", "controller-role", "leader-role"):
        kubectl.must("apply", "--namespace", SYSTEM, "-f", str(RBAC / f"{name}.yaml"))
    namespace = new_namespace(strict.api)
    token = new_token(strict.api, SYSTEM, NAME)
    await_rights(strict.api, token, namespace, RIGHTS[0])
    await_rights(strict.api, token, SYSTEM, Right("coordination.k8s.io", "leases", "create"))
    _has_what_it_claims(strict.api, token, namespace)
    play = Play(Jobs(strict.api, namespace))
    play.prepare()
    kubeconfig = write_kubeconfig(strict, token, tmp_path / "kubeconfig")
    leads = {**LEADS, "leader_elect_lease_namespace": SYSTEM}
    kubelet = FakeKubelet(strict.api, namespace=namespace, behaviour=play.behaviour)
    with kubelet, running_controller(kubeconfig, "", **leads) as manager:
        _to_the_end(play)
        eventually(lambda: jobs_workers(play, "wished") == 1, 60, 0.1)
        assert forbidden(manager) == 0
        # The rights that only this server asks for.
        for right, kind, manifest in zip(FINALIZERS, (TFJOBS, TRAINJOBS), (tfjob(), trainjob()), strict=True):
            _miss(strict.api, manager, right, kind, manifest)


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

    eventually(refused, 30, 0.5)
    api.patch(role, {"rules": rules})


def jobs_workers(play: Play, name: str) -> int | None:
    """How many workers its spec asks for by now, if it says so."""
    play.goes_on()
    found: int | None = play.jobs.get(name)["spec"].get("workerReplicas")
    return found


def _to_the_end(play: Play) -> None:
    """Every job of the play ends as it must."""
    jobs = play.jobs

    def is_suspended() -> bool:
        play.goes_on()
        conditions = jobs.status("shrinking").get("conditions") or ()
        return any(each["type"] == "Suspended" and each["status"] == "True" for each in conditions)

    eventually(is_suspended, 60, 0.05)
    eventually(lambda: "exists already" in str(jobs.status("foreign").get("reason")), 60, 0.05)
    eventually(lambda: any(each.get("series") for each in jobs.events()), 60, 0.1)
    play.relent()
    for name in ("adopted", "foreign", "shrinking"):
        eventually(lambda name=name: jobs.phase(name) == "Done", 90, 0.1)  # type: ignore[misc] # bound now
    eventually(lambda: "whole" not in {each["metadata"]["name"] for each in jobs.all()}, 60, 0.1)
    trained = TRAINJOBS.path(jobs.namespace)
    eventually(lambda: "trained" not in {each["metadata"]["name"] for each in jobs.api.list(trained)}, 60, 0.1)
    eventually(lambda: jobs.api.get(f"{trained}/impatient")["spec"].get("suspend"), 60, 0.1)
    for name in ("launched", "launched-before"):
        eventually(lambda name=name: jobs.api.get(f"{trained}/{name}")["status"].get("state") == "SUCCESS", 60, 0.1)  # type: ignore[misc] # bound now
    # Events are written a moment after the status.
    told = {"SuccessfulCreate", "SuccessfulDelete", "FailedCreate", "Done"}
    eventually(lambda: {each["reason"] for each in jobs.events()} >= told, 60, 0.1)
