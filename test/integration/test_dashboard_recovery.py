"""The dashboard in a real browser when something goes away: what is shown says so, and recovers without a reload."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from helpers.browser import visitor
from helpers.cluster import Cluster, new_namespace
from helpers.dashboards import account, dashboard, log_in, origin_of, shared_dashboard
from helpers.kubectl import Kubectl
from helpers.manifests import master, tfjob, workers
from helpers.playground import Trial
from helpers.poll import eventually
from helpers.rights import RBAC
from integration.test_dashboard import row
from localcluster import ports
from localcluster.faultproxy import FaultProxy

pytestmark = pytest.mark.cluster

NOTICE = "This may be out of date"
LOST = "The connection to the dashboard is lost"
OLD = "The cluster cannot be reached"


def editor_token(kubectl: Kubectl, cluster: Cluster, namespace: str, name: str) -> str:
    """A token of a new service account that may edit jobs in the namespace."""
    kubectl.must("apply", "--server-side", "--force-conflicts", "-f", str(RBAC / "user-roles.yaml"))
    return account(kubectl, cluster.api, name, namespace, "edit")


def hosts_of(port: int, proxy: FaultProxy) -> str:
    return f"127.0.0.1:{port},{urlsplit(proxy.url).netloc}"


def test_pages_that_are_open_say_that_the_api_server_is_away_and_recover_by_themselves(
    browser: Browser, control_plane: Cluster, trial: Trial, tmp_path: Path
) -> None:
    trial.submit(master(), workers(1))
    trial.await_phase("Running")
    with FaultProxy(control_plane.own.server) as proxy:
        kubeconfig = proxy.kubeconfig(tmp_path, control_plane.own.token)
        with dashboard(kubeconfig, "-n", trial.namespace) as address, visitor(browser) as guest:
            guest.page.goto(address)
            row(guest.page, trial)("Running")
            origin = origin_of(guest.page.url)
            pages = {path: guest.context.new_page() for path in ("/queue", "/cluster")}
            for path, page in pages.items():
                page.goto(origin + path)
                expect(page.get_by_role("heading", level=1)).to_be_visible()
            job = guest.context.new_page()
            with job.expect_response(lambda answer: "/events/" in answer.url):
                job.goto(f"{origin}/jobs/{trial.namespace}/tfjob/{trial.name}")
            expect(job.get_by_label("Diagnosis")).to_contain_text("it runs")
            for page in (guest.page, job, *pages.values()):
                page.evaluate("window.isTheSamePage = true")

            proxy.is_refusing = True
            proxy.cut_all()
            for page in (guest.page, job):
                expect(page.locator("main .notice")).to_contain_text(NOTICE)
            expect(job.get_by_label("Diagnosis")).to_contain_text("it runs")
            for page in pages.values():
                expect(page.locator("#connection")).to_contain_text(OLD)

            proxy.is_refusing = False
            for page in (guest.page, job):
                expect(page.locator("main .notice")).to_have_count(0)
            for page in pages.values():
                expect(page.locator("#connection")).to_be_hidden()
            trial.end("master-0")
            row(guest.page, trial)("Done")
            expect(job.get_by_label("Diagnosis")).to_contain_text("succeeded")
            for page in (guest.page, job, *pages.values()):
                assert page.evaluate("window.isTheSamePage")


def test_a_cut_connection_to_the_dashboard_is_shown_and_opened_again(
    browser: Browser, control_plane: Cluster, kubectl: Kubectl, trial: Trial, tmp_path: Path
) -> None:
    trial.submit(master())
    token = editor_token(kubectl, control_plane, trial.namespace, "far-away")
    with (
        ports.reserve(1, "127.0.0.1") as (port,),
        FaultProxy(f"http://127.0.0.1:{port}") as proxy,
        shared_dashboard(control_plane, tmp_path, f"--hosts={hosts_of(port, proxy)}", port=port),
        visitor(browser) as guest,
    ):
        listed = f"{proxy.url}/jobs?namespace={trial.namespace}"
        log_in(guest.page, listed, token)
        row(guest.page, trial)("Running")
        guest.page.evaluate("window.isTheSamePage = true")
        proxy.is_refusing = True
        proxy.cut_all()
        expect(guest.page.locator("#connection")).to_contain_text(LOST)
        proxy.is_refusing = False
        expect(guest.page.locator("#connection")).to_be_hidden()
        trial.end("master-0")
        row(guest.page, trial)("Done")
        assert guest.page.evaluate("window.isTheSamePage")


# A browser opens no more connections to one host, for all of its pages.
MOST_CONNECTIONS = 6
_HIDE = """is_hidden => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => is_hidden });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_hidden_pages_of_jobs_leave_the_browsers_connections_to_the_page_that_is_looked_at(
    browser: Browser, control_plane: Cluster, trial: Trial
) -> None:
    trial.submit(master(), workers(1))
    trial.await_phase("Running")
    with dashboard(control_plane.kubeconfig, "-n", trial.namespace) as address, visitor(browser) as guest:
        guest.page.goto(address)
        path = f"{origin_of(guest.page.url)}/jobs/{trial.namespace}/tfjob/{trial.name}"
        guest.page.goto(f"{origin_of(guest.page.url)}/cluster")
        pages = []
        for _ in range(MOST_CONNECTIONS):
            page = guest.context.new_page()
            page.clock.install()
            page.goto(path)
            expect(page.get_by_label("Diagnosis")).to_contain_text("it runs")
            page.evaluate(_HIDE, True)
            page.clock.fast_forward(31_000)
            pages.append(page)
        looked_at = pages[0]
        looked_at.evaluate(_HIDE, False)
        trial.end("master-0")
        expect(looked_at.get_by_label("Diagnosis")).to_contain_text("succeeded")
        expect(pages[1].get_by_label("Diagnosis")).to_contain_text("it runs")
        pages[1].evaluate(_HIDE, False)
        expect(pages[1].get_by_label("Diagnosis")).to_contain_text("succeeded")


def test_a_token_that_has_ended_leads_to_the_login_and_from_there_back(
    browser: Browser, control_plane: Cluster, kubectl: Kubectl, trial: Trial, tmp_path: Path
) -> None:
    trial.submit(master(), workers(1))
    first = editor_token(kubectl, control_plane, trial.namespace, "ends")
    second = editor_token(kubectl, control_plane, trial.namespace, "follows")
    with shared_dashboard(control_plane, tmp_path) as shared, visitor(browser) as guest:
        address = shared.address
        shown = f"{address}/jobs/{trial.namespace}/tfjob/{trial.name}"
        # The API server binds the role a moment later.
        log_in(guest.page, address, first)
        eventually(lambda: guest.page.goto(shown) and guest.page.get_by_role("button", name="Suspend").count())
        expect(guest.page.get_by_label("Diagnosis")).to_contain_text("it runs")
        other = guest.context.new_page()
        other.goto(f"{address}/queue?namespace={trial.namespace}")

        kubectl.must("delete", "serviceaccount", "ends")
        # The API server keeps what it knows of a token for ten seconds.
        for page in (guest.page, other):
            expect(page.get_by_role("heading", name="Log in")).to_be_visible()
            expect(page.get_by_role("alert")).to_contain_text("no longer accepts your token")
        log_in(guest.page, guest.page.url, first)
        expect(guest.page.get_by_role("alert")).to_contain_text("does not accept this token")
        guest.page.get_by_label("Token").fill(second)
        guest.page.get_by_role("button", name="Log in").click()
        expect(guest.page.get_by_label("Diagnosis")).to_be_visible()
        assert guest.page.url == shown


def test_a_namespace_that_was_deleted_is_said_to_be_gone(
    browser: Browser, control_plane: Cluster, kubectl: Kubectl
) -> None:
    api, space = control_plane.api, new_namespace(control_plane.api)
    jobs = f"/apis/kubeflow.org/v1alpha1/namespaces/{space}/tfjobs"
    created = api.create(jobs, tfjob(master(), name="lonely"))
    with dashboard(control_plane.kubeconfig, "-n", space) as address, visitor(browser) as guest:
        guest.page.goto(address)
        expect(guest.page.get_by_role("link", name="lonely", exact=True)).to_be_visible()
        job = guest.context.new_page()
        job.goto(f"{origin_of(guest.page.url)}/jobs/{space}/tfjob/{created['metadata']['name']}")
        expect(job.get_by_label("Diagnosis")).to_be_visible()
        kubectl.must("delete", "namespace", space, "--wait=false")
        expect(job.locator("#view")).to_contain_text("was deleted")
        expect(guest.page.locator("main .notice")).to_contain_text(space)
        eventually(lambda: not any(each["metadata"]["name"] == space for each in api.list("/api/v1/namespaces")), 120)
        guest.page.reload()
        expect(guest.page.get_by_text(f"There is no namespace {space}.")).to_be_visible()
        # Nothing has to be restarted when it exists again.
        api.create("/api/v1/namespaces", {"metadata": {"name": space}})
        api.create(jobs, tfjob(master(), name="again"))
        expect(guest.page.get_by_role("link", name="again", exact=True)).to_be_visible()
        kubectl.must("delete", "namespace", space, "--wait=false")
