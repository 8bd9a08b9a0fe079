"""The list of jobs in a real browser: states, order, saved filters, selections, and the figures above it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Locator, Page, expect

from helpers.browser import visitor
from helpers.cluster import Cluster, new_token, write_kubeconfig
from helpers.dashboards import dashboard, origin_of
from helpers.kubectl import Kubectl
from helpers.manifests import master, tfjob
from helpers.poll import eventually
from helpers.rights import RBAC

pytestmark = pytest.mark.cluster

JOBS = "/apis/kubeflow.org/v1alpha1/namespaces/{}/tfjobs"
STATUSES: dict[str, dict[str, Any]] = {
    "broken": {"phase": "Creating", "summary": "Pending", "reason": "master-0: ImagePullBackOff: no such image"},
    "runs": {"phase": "Running", "summary": "Running", "restarts": 2},
    "ended": {"phase": "Done", "summary": "Succeeded", "state": "Succeeded", "reason": "master-0 succeeded"},
    "fresh": {},
}
PHONE, PHONE_ROWS = 400, 40


class List:
    """A namespace with one job in each of `STATUSES`, which no controller changes, and the page that lists them."""

    def __init__(self, cluster: Cluster, namespace: str, page: Page) -> None:
        self.api, self.namespace, self.page = cluster.api, namespace, page
        for name, status in STATUSES.items():
            self.create(name, status)

    def create(self, name: str, status: dict[str, Any]) -> None:
        self.api.create(JOBS.format(self.namespace), tfjob(master(), name=name))
        self.report(name, status)

    def report(self, name: str, status: dict[str, Any]) -> None:
        if status:
            self.api.patch(f"{JOBS.format(self.namespace)}/{name}/status", {"status": status})

    def spec(self, name: str) -> dict[str, Any]:
        spec: dict[str, Any] = self.api.get(f"{JOBS.format(self.namespace)}/{name}")["spec"]
        return spec

    def names(self) -> list[str]:
        return sorted(job["metadata"]["name"] for job in self.api.get(JOBS.format(self.namespace))["items"])

    @property
    def rows(self) -> Locator:
        return self.page.locator("tbody th a")

    def chip(self, word: str) -> Locator:
        return self.page.get_by_role("navigation", name="States").get_by_role("link", name=word)

    def head(self, word: str) -> Locator:
        return self.page.get_by_role("columnheader", name=word)

    def box(self, name: str) -> Locator:
        return self.page.get_by_role("checkbox", name=f"Select {name}", exact=True)

    @property
    def selected(self) -> Locator:
        return self.page.get_by_role("region", name="Selected jobs")


@pytest.fixture
def listed(browser: Browser, control_plane: Cluster, administrator: Kubectl, namespace: str) -> Iterator[List]:
    with dashboard(control_plane.kubeconfig, "-n", namespace) as address, visitor(browser) as guest:
        found = List(control_plane, namespace, guest.page)
        guest.page.goto(address)
        expect(found.rows).to_have_count(len(STATUSES))
        yield found
        assert guest.errors == []


def test_chips_count_the_states_and_choose_one(listed: List) -> None:
    expect(listed.rows.first).to_have_text("broken")
    needs_you = listed.page.locator("tr.needs-you")
    expect(needs_you).to_contain_text("Needs you")
    expect(needs_you.locator("td.reason")).to_have_text(re.compile("^Broken image .*ImagePullBackOff: no such image"))
    expect(listed.chip("All 4")).to_have_attribute("aria-current", "true")
    listed.page.evaluate("window.isTheSamePage = true")
    listed.chip("Starting 1").click()
    expect(listed.rows).to_have_text(["fresh"])
    assert "state=starting" in listed.page.url
    expect(listed.chip("Starting 1")).to_have_attribute("aria-current", "true")
    # The chip that was pressed keeps the focus, and another filter keeps the state.
    expect(listed.chip("Starting 1")).to_be_focused()
    listed.page.get_by_label("Text", exact=True).fill("x")
    expect(listed.rows).to_have_count(0)
    assert "state=starting" in listed.page.url
    listed.page.get_by_label("Text", exact=True).fill("")
    listed.report("fresh", STATUSES["runs"])
    expect(listed.chip("Starting 0")).to_be_visible()
    listed.chip("Running 2").click()
    expect(listed.rows).to_have_count(2)
    assert listed.page.evaluate("window.isTheSamePage")


def test_an_address_with_a_state_of_before_still_leads_to_it(listed: List) -> None:
    listed.page.goto(f"{origin_of(listed.page.url)}/jobs?namespace={listed.namespace}&state=Succeeded&sort=-state")
    expect(listed.rows).to_have_text(["ended"])


def test_heads_of_columns_sort(listed: List) -> None:
    expect(listed.head("State")).to_have_attribute("aria-sort", "ascending")
    listed.head("Job").get_by_role("link").click()
    expect(listed.rows).to_have_text(["broken", "ended", "fresh", "runs"])
    expect(listed.head("Job")).to_have_attribute("aria-sort", "ascending")
    expect(listed.head("State")).not_to_have_attribute("aria-sort", re.compile("."))
    listed.page.keyboard.press("Enter")
    expect(listed.rows).to_have_text(["runs", "fresh", "ended", "broken"])
    expect(listed.head("Job")).to_have_attribute("aria-sort", "descending")
    listed.head("Restarts").get_by_role("link").click()
    expect(listed.rows.first).to_have_text("runs")
    expect(listed.page).to_have_url(re.compile("sort=-restarts"))


def test_a_saved_filter_is_there_after_a_reload_until_it_is_removed(listed: List) -> None:
    page, menu = listed.page, listed.page.locator("#saved")
    listed.chip("Done 1").click()
    expect(listed.rows).to_have_text(["ended"])
    menu.locator("summary").click()
    menu.get_by_label("Save this filter as").fill("what <b>ended</b>")
    page.keyboard.press("Enter")
    expect(menu.get_by_role("link", name="what <b>ended</b>")).to_be_visible()
    page.keyboard.press("Escape")
    expect(menu.locator("summary")).to_be_focused()
    page.goto(f"{origin_of(page.url)}/jobs?namespace={listed.namespace}")
    expect(listed.rows).to_have_count(len(STATUSES))
    menu.locator("summary").click()
    menu.get_by_role("link", name="what <b>ended</b>").click()
    expect(listed.rows).to_have_text(["ended"])
    menu.locator("summary").click()
    menu.get_by_role("button", name="Remove what").click()
    page.reload()
    menu.locator("summary").click()
    expect(menu.get_by_role("link", name=re.compile("Needs you in"))).to_be_visible()
    expect(menu.get_by_role("link", name="what <b>ended</b>")).to_have_count(0)


def test_a_selection_survives_changes_and_is_suspended_and_deleted_at_once(listed: List) -> None:
    page = listed.page
    for name in ("runs", "fresh"):
        listed.box(name).check()
    expect(listed.selected).to_contain_text("2 selected")
    listed.report("runs", {"restarts": 5})
    expect(page.locator("tr", has_text="runs").locator('td[data-label="Restarts"]')).to_have_text("5")
    expect(listed.box("runs")).to_be_checked()
    listed.chip("Starting 1").click()
    expect(listed.selected).to_contain_text("2 selected, 1 of them not shown")
    listed.chip("All 4").click()
    expect(listed.box("runs")).to_be_checked()
    listed.selected.get_by_role("button", name="Suspend").click()
    expect(page.locator("#answer")).to_contain_text("Suspended 2 jobs")
    assert [listed.spec(name).get("suspend") for name in ("runs", "fresh", "broken")] == [True, True, None]
    expect(listed.selected).to_be_hidden()

    questions: list[str] = []

    def answer(dialog: Dialog) -> None:
        questions.append(dialog.message)
        if len(questions) == 1:
            dialog.dismiss()
        else:
            dialog.accept()

    page.on("dialog", answer)
    page.get_by_label("Select all shown").check()
    listed.box("runs").uncheck()
    expect(listed.selected).to_contain_text("3 selected")
    delete = listed.selected.get_by_role("button", name="Delete")
    delete.click()
    assert len(listed.names()) == len(STATUSES)
    delete.click()
    expect(page.locator("#answer")).to_contain_text("Deleted 3 jobs")
    eventually(lambda: listed.names() == ["runs"])
    assert questions[0].startswith("Delete 3 jobs and their pods? ")
    assert all(name in questions[0] for name in ("broken", "ended", "fresh"))
    expect(listed.rows).to_have_text(["runs"])


def test_shift_selects_a_range(listed: List) -> None:
    listed.head("Job").get_by_role("link").click()
    expect(listed.rows.first).to_have_text("broken")
    listed.box("broken").check()
    listed.box("fresh").click(modifiers=["Shift"])
    expect(listed.selected).to_contain_text("3 selected")
    expect(listed.box("ended")).to_be_checked()
    listed.selected.get_by_role("button", name="Clear").click()
    expect(listed.selected).to_be_hidden()
    expect(listed.box("broken")).not_to_be_checked()


def test_a_refused_change_names_the_job_and_the_others_are_changed(listed: List) -> None:
    for name in ("ended", "runs"):
        listed.box(name).check()
    listed.selected.get_by_role("button", name="Suspend").click()
    answer = listed.page.locator("#answer")
    expect(answer).to_contain_text("Suspended 1 job: runs.")
    expect(answer.locator("li")).to_have_count(1)
    expect(answer.locator("li")).to_contain_text(f"tfjob {listed.namespace}/ended")
    expect(answer.locator("li")).to_contain_text("a job that has ended cannot be suspended")
    # What was refused stays selected.
    expect(listed.selected).to_contain_text("1 selected")


def test_a_job_that_is_gone_does_not_stay_selected(listed: List) -> None:
    for name in ("ended", "runs"):
        listed.box(name).check()
    listed.api.delete(f"{JOBS.format(listed.namespace)}/ended")
    expect(listed.selected).to_contain_text("2 selected, 1 of them not shown")
    listed.selected.get_by_role("button", name="Suspend").click()
    expect(listed.page.locator("#answer li")).to_contain_text("not found")
    expect(listed.selected).to_be_hidden()


def test_who_may_only_view_compares_jobs_and_sees_the_figures_of_no_nodes(
    browser: Browser, control_plane: Cluster, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    kubectl.must("apply", "--server-side", "-f", str(RBAC / "user-roles.yaml"))
    kubectl.must("create", "serviceaccount", "list-viewer", "-n", namespace)
    account = f"--serviceaccount={namespace}:list-viewer"
    kubectl.must("create", "rolebinding", "list-views", "-n", namespace, "--clusterrole=view", account)
    token = new_token(control_plane.api, namespace, "list-viewer")
    kubeconfig = write_kubeconfig(control_plane, token, tmp_path / "kubeconfig")
    with dashboard(kubeconfig, "-n", namespace) as address, visitor(browser) as viewer:
        viewer.page.goto(address)
        listing = List(control_plane, namespace, viewer.page)

        def is_listed() -> bool:  # Kubernetes adds the shipped rights to its role a moment later
            viewer.page.reload()
            return viewer.page.locator("tbody tr").count() == len(STATUSES)

        eventually(is_listed, timeout=60)
        expect(viewer.page.get_by_role("region", name="The cluster")).to_contain_text("0 used")
        selected = viewer.page.get_by_role("region", name="Selected jobs")
        listing.box("runs").check()
        expect(selected.get_by_role("button", name="Compare")).to_be_disabled()
        listing.box("broken").check()
        for change in ("Suspend", "Resume", "Delete"):
            expect(selected.get_by_role("button", name=change)).to_have_count(0)
        selected.get_by_role("button", name="Compare").click()
        expect(viewer.page.get_by_role("heading", name="Compare jobs")).to_be_visible()
        expect(viewer.page.locator("#compared li")).to_have_count(2)
        # Links keep the namespace that was chosen.
        expect(viewer.page.get_by_role("link", name="Queue", exact=True)).to_have_attribute(
            "href", f"/queue?namespace={namespace}"
        )
        assert viewer.errors == []


def test_the_figures_have_the_gpus_of_nodes_and_who_holds_them(listed: List, namespace: str) -> None:
    api, page, node = listed.api, listed.page, f"gpus-{namespace}"[:60]
    amounts = {"cpu": "64", "memory": "1Ti", "pods": "100", "list.example/gpu": "800"}
    api.create("/api/v1/nodes", {"metadata": {"name": node}})
    try:
        api.patch(f"/api/v1/nodes/{node}/status", {"status": {"allocatable": amounts, "capacity": amounts}})
        devices = {"list.example/gpu": "200"}
        container = {"name": "c", "image": "i", "resources": {"limits": devices, "requests": devices}}
        labels = {"tf_job_name": "runs", "runtime_id": "abcd", "job_type": "MASTER", "task_index": "0"}
        api.create(
            f"/api/v1/namespaces/{namespace}/pods",
            {
                "metadata": {"name": "holder", "labels": labels},
                "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0},
            },
        )
        figures = page.get_by_role("region", name="The cluster")

        def has_them() -> bool:
            page.reload()
            expect(figures).to_be_visible()
            return "list.example/gpu" in figures.inner_text()

        eventually(has_them, timeout=60)
        expect(figures).to_contain_text("200 of 800 used")
        expect(figures).to_contain_text("600 free")
        expect(figures.get_by_role("img", name="list.example/gpu: 200 of 800 used")).to_be_visible()
        expect(figures.get_by_role("listitem").filter(has_text=namespace)).to_contain_text("200")
    finally:
        api.delete(f"/api/v1/namespaces/{namespace}/pods/holder")
        api.delete(f"/api/v1/nodes/{node}")


def test_a_phone_shows_forty_jobs_in_short_rows(listed: List) -> None:
    page = listed.page
    for number in range(PHONE_ROWS - len(STATUSES)):
        listed.create(f"training-of-a-model-{number}", STATUSES["broken"] if number % 4 == 0 else STATUSES["runs"])
    page.set_viewport_size({"width": PHONE, "height": 900})
    expect(listed.rows).to_have_count(PHONE_ROWS)
    table = page.locator("tbody").bounding_box()
    assert table is not None
    assert table["height"] <= 70 * PHONE_ROWS
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    # The reason has one line, which is read whole by those who ask for it.
    reason = page.locator("tr.needs-you td.reason").first
    expect(reason.locator("span")).to_have_attribute("title", STATUSES["broken"]["reason"])
