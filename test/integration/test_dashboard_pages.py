"""What the pages of the dashboard show beside the states of jobs: progress, charts, gangs, and the nodes."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from helpers.browser import Visitor, visitor
from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.controller import Jobs
from helpers.dashboards import dashboard, faults, origin_of
from helpers.gangowner import Owner
from helpers.manifests import gang_job, master, tfjob, workers
from helpers.playground import Trial, ends
from integration.test_dashboard import address, guest, open_job, row
from integration.test_gang_tfjobs import jobs

pytestmark = pytest.mark.cluster

__all__ = ["address", "guest", "jobs"]
# More than a page shows.
MANY = 103


def report(train: Trial, step: int, loss: float, percent: int) -> None:
    """Writes into the status of a job that has ended what the controller writes after a report of its program."""
    metrics = [{"name": "loss", "value": str(loss)}, {"name": "step", "value": str(step)}]
    reported = {"progressPercentage": percent, "lastUpdatedTime": "2026-01-01T00:00:00Z"}
    status = {"metrics": metrics, "progress": f"{percent} %", "trainerStatus": reported}
    path = f"{train.jobs.resource.path(train.namespace, train.name)}/status"
    train.jobs.api.patch(path, {"status": status})


def test_progress_and_loss_are_seen_in_the_list_and_as_a_chart(guest: Visitor, train: Trial) -> None:
    train.plays("node-0", ends(0))
    train.train(1)
    train.await_end()
    report(train, 10, 3.0, 25)
    see = row(guest.page, train)
    see("25 %")
    listed = guest.page.locator("tr", has=guest.page.get_by_role("link", name=train.name, exact=True))
    expect(listed.locator("progress")).to_have_attribute("value", "25")
    charts = guest.context.new_page()
    charts.goto(f"{origin_of(guest.page.url)}/jobs/{train.namespace}/trainjob/{train.name}")
    expect(charts.locator("figcaption")).to_contain_text("last 3,")
    report(train, 20, 1.5, 50)
    expect(listed.locator("progress")).to_have_attribute("value", "50")
    expect(listed.locator("svg.spark polyline")).to_have_count(1)
    # There is no log: the values are those of the status since the page was opened.
    expect(charts.locator("figcaption")).to_contain_text("last 1.5, least 1.5, greatest 3")
    expect(charts.locator("figure canvas")).to_be_visible()


@pytest.mark.long
def test_jobs_are_filtered_by_namespace_and_kind_sorted_and_shown_in_pages(
    browser: Browser, control_plane: Cluster, train: Trial
) -> None:
    api, space = control_plane.api, new_namespace(control_plane.api)
    for number in range(MANY):
        api.create(f"/apis/kubeflow.org/v1alpha1/namespaces/{space}/tfjobs", tfjob(master(), name=f"job-{number:03}"))
    train.train(1)
    with dashboard(control_plane.kubeconfig, "-n", space) as address, visitor(browser) as guest:
        page = guest.page
        page.goto(address)
        names = page.locator("tbody th a")
        head = page.get_by_role("columnheader", name="Job").get_by_role("link")
        head.click()
        expect(names.first).to_have_text("job-000")
        expect(names).to_have_count(100)
        page.get_by_role("link", name="Next").click()
        expect(names).to_have_text(["job-100", "job-101", "job-102"])
        head.click()
        expect(names.first).to_have_text("job-102")
        page.get_by_label("Kind").select_option("trainjob")
        expect(page.get_by_text("No job is selected")).to_be_visible()
        page.get_by_label("Namespace").fill(train.namespace)
        page.get_by_label("Namespace").blur()
        expect(page.get_by_role("link", name=train.name, exact=True)).to_be_visible()
        page.get_by_label("Namespace").fill("")
        page.get_by_label("Namespace").blur()
        page.get_by_label("Kind").select_option("")
        page.get_by_label("Text", exact=True).fill("job-05")
        expect(names).to_have_text([f"job-05{digit}" for digit in reversed(range(10))])
        assert faults(guest.errors) == []
    delete_namespace(api, space)


def test_gangs_are_followed_from_the_queue_to_their_nodes(browser: Browser, jobs: Jobs, gang_cluster: Cluster) -> None:
    Owner(jobs.api, "gangs").submit("reserved", worker=1)
    with dashboard(gang_cluster.kubeconfig, "-n", "gangs") as address, visitor(browser) as guest:
        page = guest.page
        page.goto(address)
        page.goto(f"{origin_of(page.url)}/cluster")
        expect(page.get_by_role("img", name=re.compile(r"cpu on node-.: 0.0 % used, 25.0 % reserved"))).to_have_count(1)
        jobs.submit(gang_job("runs", 5))
        jobs.await_phase("Running", "runs", 40)
        for node in ("node-a", "node-b"):
            on_node = page.get_by_role("region", name=f"Node {node}").get_by_role("link", name="runs", exact=True)
            expect(on_node).to_have_count(1)
        jobs.submit(gang_job("waits", 5))
        page.goto(f"{origin_of(page.url)}/queue")
        waiting = page.get_by_role("region", name="Waiting gangs")
        # The members of the waiting gang lack what the running one holds, which has no limit.
        holders = waiting.locator("tbody tr")
        expect(holders.first).to_contain_text(re.compile(r"runs.*unknown: it has no limit and no estimate", re.DOTALL))
        expect(waiting).to_contain_text("May start: unknown: no limit or estimate of tfjob/runs")
        waiting.get_by_role("link", name="waits", exact=True).click()
        expect(page.get_by_label("Diagnosis")).to_contain_text("it waits for capacity as a gang")
        expect(page.locator(".gantt rect.waiting")).to_have_count(6)
        jobs.end_replica("master", job="runs")
        expect(page.locator(".gantt rect.admitted")).to_have_count(6)
        expect(page.locator(".gantt rect.running")).to_have_count(6)
        assert faults(guest.errors) == []
        jobs.end_replica("master", job="waits")
        jobs.await_phase("Done", "waits", 40)


def test_a_restart_is_marked_in_the_chart_of_replicas(guest: Visitor, trial: Trial) -> None:
    trial.plays("worker-0", ends(137))
    trial.submit(master(), workers(1))
    row(guest.page, trial)("Running")
    open_job(guest.page, trial)
    chart = guest.page.locator(".gantt")
    expect(chart.locator(".mark.restart")).to_have_count(1)
    expect(chart.locator("rect.failed, rect.earlier")).to_have_count(1)
    trial.end("master-0")
    expect(chart.locator("rect.succeeded")).to_have_count(1)
