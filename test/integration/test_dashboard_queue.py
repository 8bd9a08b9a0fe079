"""The page of the queue: who waits, who holds what they lack and until when, who makes way, and shares."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from helpers.browser import Visitor, visitor
from helpers.cluster import Cluster, delete_namespace, make_node, new_namespace
from helpers.dashboards import account, expect_heading, faults, log_in, origin_of, shared_dashboard
from helpers.gangowner import GANGS
from helpers.kubectl import Kubectl
from helpers.manifests import container, pod_template
from helpers.poll import eventually
from helpers.rights import RBAC
from helpers.trainmanifests import trainjob
from integration.test_dashboard import address, guest
from integration.test_dashboard_accessibility import expect_accessible, press
from localcluster.api import Api
from tfjob_controller.jobs.naming import TRAIN_JOB_NAME, job_labels, replica_labels, runtime_id_of

pytestmark = pytest.mark.cluster

__all__ = ["address", "guest"]
GPU = "example.com/accelerator"


def gang(name: str, status: dict[str, Any], **members: int) -> dict[str, Any]:
    kinds = [{"name": kind, "count": count, "resources": {"cpu": "1"}} for kind, count in members.items()]
    return {"metadata": {"name": name}, "spec": {"members": kinds, "priority": 7}, "status": status}


def test_the_queue_shows_who_waits_for_what_who_makes_way_and_the_shares(
    guest: Visitor, control_plane: Cluster, namespace: str
) -> None:
    api, path = control_plane.api, GANGS.format(namespace)
    lacks = [{"resource": "cpu", "requested": "16", "available": "4"}]
    placed = [{"node": "n1", "members": ["worker-0", "worker-1", "worker-2", "worker-3"]}]
    found = (
        gang("next", {"phase": "Waiting", "position": 2, "message": "needs more", "missing": lacks}, worker=16),
        gang("first", {"phase": "Waiting", "position": 1, "message": "is first"}, worker=2),
        gang(
            "large",
            {
                "phase": "Bound",
                "placement": placed,
                "targetMembers": {"worker": 2},
                "targetReason": f"capacity for {namespace}/first, waiting 31 s",
            },
            worker=4,
        ),
    )
    preemption = {"by": f"{namespace}/first", "state": "Requested", "time": "2026-01-01T00:00:00.000000Z"}
    leaves = gang("victim", {"phase": "Bound", "placement": placed, "preemption": preemption}, worker=4)
    for each in (*found, leaves):
        name = each["metadata"]["name"]
        api.create(path, {**each, "apiVersion": "scheduling.kubeflow.org/v1alpha1", "kind": "Gang"})
        api.patch(f"{path}/{name}/status", {"status": each["status"]})
    page = guest.page
    page.goto(f"{origin_of(page.url)}/queue?namespace={namespace}")

    def rows(region: str) -> Locator:
        return page.get_by_role("region", name=region).locator("tbody tr")

    waiting = page.get_by_role("region", name="Waiting gangs").get_by_role("article")
    expect(waiting).to_have_text(
        [re.compile(r"\s*Position 1\s.*first.*is first", re.DOTALL), re.compile(r"\s*Position 2\s.*next", re.DOTALL)]
    )
    expect(waiting.nth(1)).to_contain_text("cpu: room for 4 of 16 pods")
    expect(waiting.nth(1).get_by_role("img", name="cpu: room for 4 of 16 pods")).to_be_visible()
    expect(rows("Requests to running gangs").nth(0)).to_contain_text(f"capacity for {namespace}/first")
    expect(rows("Requests to running gangs")).to_contain_text(["worker 4 → 2", "all pods leave"])
    expect(rows("Requests to running gangs").nth(1)).to_contain_text(f"preempted by {namespace}/first")
    expect(rows("Shares of namespaces")).to_contain_text(namespace)
    expect(rows("Shares of namespaces")).to_contain_text("cpu 8")
    expect(rows("Shares of namespaces").locator('[data-label="Weight"]')).to_have_text("1")
    page.evaluate("window.isTheSamePage = true")
    api.delete(f"{path}/first")
    expect(waiting).to_have_count(1)
    assert page.evaluate("window.isTheSamePage")


@dataclass(frozen=True, slots=True)
class Shared:
    """A node with four devices of its own kind: two jobs of two namespaces hold them, and a gang waits for three."""

    api: Api
    team: str
    others: str
    node: str

    def build(self) -> None:
        self.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}})
        make_node(self.api, self.node, {"cpu": "8", "memory": "16Gi", "pods": "20", GPU: "4"}, {"pool": self.node})
        # No kubelet starts these pods, and no scheduler places others there.
        self.api.patch(f"/api/v1/nodes/{self.node}", {"spec": {"taints": [{"key": "test", "effect": "NoSchedule"}]}})
        self._hold(self.team, "limited", 1, activeDeadlineSeconds=7200)
        self._hold(self.others, "secret-holder", 2)
        self.wait("first", 1, requested=2)
        self.wait("second", 2, requested=3)

    def _hold(self, namespace: str, name: str, devices: int, **spec: Any) -> None:
        """A job that has run for an hour, with a pod."""
        path = f"/apis/kubeflow.org/v2alpha1/namespaces/{namespace}/trainjobs"
        manifest = trainjob(name, 1, trainer={"image": "a"})
        created = self.api.create(path, {**manifest, "spec": {**manifest["spec"], **spec}})
        started = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.api.patch(f"{path}/{name}/status", {"status": {"summary": "Running", "startTime": started}})
        labels = job_labels(name, runtime_id_of(created["metadata"]["uid"]), TRAIN_JOB_NAME)
        resources = {"limits": {GPU: str(devices)}}
        template = pod_template({**container(), "resources": resources}, nodeName=self.node)
        meta = {"name": f"{name}-0", "labels": replica_labels(labels, "NODE", "0")}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, **template}
        self.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)

    def wait(self, name: str, position: int, requested: int) -> None:
        member = {
            "name": "node",
            "count": requested,
            "resources": {GPU: "1"},
            "nodeSelector": {"pool": self.node},
            "tolerations": [{"operator": "Exists"}],
        }
        lacks = [{"resource": GPU, "requested": str(requested), "available": "1"}]
        status = {"phase": "Waiting", "position": position, "message": "needs more", "missing": lacks}
        body = {"apiVersion": "scheduling.kubeflow.org/v1alpha1", "kind": "Gang", "metadata": {"name": name}}
        self.api.create(GANGS.format(self.team), {**body, "spec": {"members": [member]}})
        self.api.patch(f"{GANGS.format(self.team)}/{name}/status", {"status": status})

    def clear(self) -> None:
        self.api.delete(f"/api/v1/nodes/{self.node}")
        for namespace in (self.team, self.others):
            delete_namespace(self.api, namespace)


@pytest.fixture
def shared(control_plane: Cluster, administrator: Kubectl) -> Iterator[Shared]:
    api = control_plane.api
    found = Shared(api, new_namespace(api, "team"), new_namespace(api, "others"), f"shared-{secrets.token_hex(4)}")
    found.build()
    yield found
    found.clear()


def test_each_waiting_gang_leads_to_the_jobs_that_hold_what_it_lacks_and_to_their_ends(
    guest: Visitor, shared: Shared
) -> None:
    page = guest.page
    page.goto(f"{origin_of(page.url)}/queue?namespace={shared.team}")
    first, second = (page.locator(f"#wait-{shared.team}-{name}") for name in ("first", "second"))
    expect(first.locator("tbody tr")).to_have_count(2)
    holder = first.locator("tbody tr", has_text=f"trainjob in {shared.others}")
    expect(holder).to_contain_text("secret-holder")
    expect(holder.locator('[data-label="Amount"]')).to_have_text("2")
    expect(holder).to_contain_text("unknown: it has no limit and no estimate")
    limited = first.locator("tbody tr", has_text="limited")
    expect(limited.locator('[data-label="Ends"]')).to_have_text(re.compile(r"in (59|60)m \(limit\)"))
    # One device is enough for the first gang; the second one needs those of the job without a limit as well.
    expect(first).to_contain_text(re.compile(r"May start: in (59|60)m, by the limits of jobs"))
    expect(second).to_contain_text("May start: unknown: no limit or estimate of trainjob/secret-holder")
    expect(second.locator("table")).to_be_hidden()
    press(page, second.locator("summary"))
    expect(second.locator("table")).to_be_visible()
    shared.wait("third", 3, requested=3)
    expect(page.locator(f"#wait-{shared.team}-third")).to_be_visible()
    expect(second.locator("table")).to_be_visible()
    expect(second.locator("summary")).to_be_focused()
    first.get_by_role("link", name="limited").click()
    expect_heading(page, "limited")


def test_the_queue_with_holders_is_accessible_on_a_phone_and_a_desk(guest: Visitor, shared: Shared) -> None:
    page = guest.page
    page.goto(f"{origin_of(page.url)}/queue?namespace={shared.team}")
    expect(page.locator("article table:visible")).to_have_count(1)
    expect_accessible(page)


def test_who_may_read_one_namespace_sees_its_holders_and_that_others_hold_the_rest(
    browser: Browser, control_plane: Cluster, shared: Shared, administrator: Kubectl, tmp_path: Path
) -> None:
    administrator.must("apply", "--server-side", "--force-conflicts", "-f", str(RBAC / "user-roles.yaml"))
    kubectl = Kubectl(administrator.kubeconfig, administrator.cache, shared.team)
    token = account(kubectl, control_plane.api, "viewer", shared.team, "view")
    question = ("auth", "can-i", "list", "trainjobs", f"--as=system:serviceaccount:{shared.team}:viewer")
    eventually(lambda: kubectl.run(*question).code == 0, timeout=60)
    with shared_dashboard(control_plane, tmp_path) as running, visitor(browser) as person:
        page = person.page
        log_in(page, running.address, token)
        page.goto(f"{running.address}/queue?namespace={shared.team}")
        first, second = (page.locator(f"#wait-{shared.team}-{name}") for name in ("first", "second"))
        expect(first.locator("tbody tr")).to_have_count(1)
        expect(first.locator("tbody tr")).to_contain_text("limited")
        expect(first).to_contain_text("Others, which you may not see, may hold more.")
        expect(second).to_contain_text(
            "May start: unknown: gangs ahead of it come first, and you may not list the nodes and the pods"
        )
        assert "secret-holder" not in page.content()
        assert faults(person.errors) == []
