"""The dashboard of a team for somebody who has Kubernetes' role `view` in one namespace, and nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, expect

from helpers.browser import visitor
from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.dashboards import account, expect_heading, log_in, shared_dashboard
from helpers.kubectl import Kubectl
from helpers.manifests import master, tfjob
from helpers.poll import eventually
from helpers.rights import RBAC

pytestmark = pytest.mark.cluster


@dataclass(frozen=True, slots=True)
class Guest:
    """A page of somebody who has logged in as a service account of `home`, with the role `view` in `team`."""

    page: Page
    address: str
    home: str
    team: str

    def expect_namespace(self, namespace: str) -> None:
        expect(self.page.get_by_label("Namespace", exact=True)).to_have_value(namespace)

    def open(self, name: str) -> None:
        self.page.get_by_role("link", name=name, exact=True).click()


@pytest.fixture(scope="module")
def guest(
    browser: Browser,
    control_plane: Cluster,
    administrator: Kubectl,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Guest]:
    api = control_plane.api
    administrator.must("apply", "--server-side", "--force-conflicts", "-f", str(RBAC / "user-roles.yaml"))
    home, team = new_namespace(api), new_namespace(api, "team")
    for namespace, job in ((home, "own"), (team, "shared")):
        path = f"/apis/{{}}/namespaces/{namespace}"
        api.create(path.format("kubeflow.org/v1alpha1") + "/tfjobs", tfjob(master(), name=job, suspend=True))
        gang = {"apiVersion": "scheduling.kubeflow.org/v1alpha1", "kind": "Gang", "metadata": {"name": f"{job}-gang"}}
        spec = {"members": [{"name": "worker", "count": 2}]}
        api.create(path.format("scheduling.kubeflow.org/v1alpha1") + "/gangs", {**gang, "spec": spec})
    kubectl = Kubectl(administrator.kubeconfig, administrator.cache, home)
    token = account(kubectl, api, "viewer", team, "view")
    kubectl.must("create", "rolebinding", "own", "--clusterrole=view", f"--serviceaccount={home}:viewer")
    question = ("auth", "can-i", "list", "tfjobs", f"--as=system:serviceaccount:{home}:viewer")
    # Kubernetes adds the shipped rights to its role a moment later.
    eventually(lambda: kubectl.run(*question).code == 0, timeout=60)
    folder = tmp_path_factory.mktemp("shared")
    with shared_dashboard(control_plane, folder) as shared, visitor(browser) as window:
        log_in(window.page, shared.address, token)
        expect(window.page.locator(".who")).to_contain_text("viewer")
        yield Guest(window.page, shared.address, home, team)
    for namespace in (home, team):
        delete_namespace(api, namespace)


def test_the_pages_begin_with_the_namespace_of_an_account_that_may_not_see_all(guest: Guest) -> None:
    page = guest.page
    for path in ("/jobs", "/queue", "/cluster"):
        page.goto(guest.address + path)
        guest.expect_namespace(guest.home)
    page.goto(f"{guest.address}/jobs")
    expect(page.get_by_role("link", name="own", exact=True)).to_be_visible()
    guest.open("Queue")
    expect(page.get_by_role("region", name="Waiting gangs")).to_contain_text("own-gang")
    guest.open("New job")
    guest.expect_namespace(guest.home)


def test_a_chosen_namespace_is_kept_from_page_to_page(guest: Guest) -> None:
    page = guest.page
    page.goto(f"{guest.address}/jobs")
    page.get_by_label("Namespace", exact=True).fill(guest.team)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="shared", exact=True)).to_be_visible()
    for name in ("Queue", "Cluster", "New job", "Jobs"):
        guest.open(name)
        guest.expect_namespace(guest.team)
    guest.open("shared")
    expect_heading(page, "shared")
    guest.open("Queue")
    expect(page.get_by_role("region", name="Waiting gangs")).to_contain_text("shared-gang")
    page.goto(f"{guest.address}/jobs/{guest.team}/tfjob/nobody")
    expect_heading(page, "Not found")
    page.get_by_role("main").get_by_role("link", name="Jobs").click()
    guest.expect_namespace(guest.team)
    # From the page of all namespaces, which this person may not see, the way back leads there as well.
    page.goto(f"{guest.address}/jobs/{guest.team}/tfjob/shared?namespace=")
    guest.open("Jobs")
    guest.expect_namespace("")


def test_what_needs_rights_on_the_cluster_names_the_cluster_role_and_who_can_give_it(guest: Guest) -> None:
    page, notice = guest.page, guest.page.locator("main .notice")
    for path, role in (("/jobs", "view"), ("/queue", "view"), ("/cluster", "tfjob-cluster-viewer")):
        page.goto(f"{guest.address}{path}?namespace=")
        expect(notice).to_contain_text(f"ask a cluster administrator to bind the ClusterRole `{role}` to you")
        expect(notice).not_to_contain_text("that namespace")
        guest.expect_namespace("")
    page.get_by_label("Namespace", exact=True).fill(guest.team)
    page.keyboard.press("Enter")
    expect(notice).to_contain_text("Free capacity is not shown: nodes is forbidden")
    expect(notice).to_contain_text("the ClusterRole `tfjob-cluster-viewer`")
    page.goto(f"{guest.address}/queue?namespace=default")
    expect(notice).to_contain_text("ask for the role `view` in that namespace")


def test_a_new_job_without_a_namespace_names_that_field(guest: Guest) -> None:
    page = guest.page
    page.goto(f"{guest.address}/new?namespace=")
    page.get_by_label("Name", exact=True).fill("a")
    page.get_by_label("Image", exact=True).fill("i")
    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.locator("#problem-namespace")).to_contain_text("is required: give the job a namespace")
    expect(page.get_by_label("Namespace", exact=True)).to_have_attribute("aria-invalid", "true")
