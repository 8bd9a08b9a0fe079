"""The dashboard in a real browser, against a real API server and a controller at work."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from helpers.browser import Visitor, visitor
from helpers.cluster import Cluster, new_token, set_pod_running, set_pod_waiting, write_kubeconfig
from helpers.dashboards import HOSTILE, dashboard
from helpers.kubectl import Kubectl
from helpers.logkubelet import Kubelet
from helpers.manifests import container, master, pod_template, workers
from helpers.playground import Playground, Trial, alone, ends
from helpers.plugin import Run
from helpers.poll import eventually
from helpers.rights import RBAC
from localcluster.faultproxy import FaultProxy

pytestmark = pytest.mark.cluster


@pytest.fixture
def address(control_plane: Cluster, playground: Playground) -> Iterator[str]:
    with dashboard(control_plane.kubeconfig, "-n", playground.jobs.namespace) as address:
        yield address


@pytest.fixture
def guest(browser: Browser, address: str) -> Iterator[Visitor]:
    """A browser that has opened the address; its console must stay without errors."""
    with visitor(browser) as guest:
        guest.page.goto(address)
        yield guest
        assert guest.errors == []


def row(page: Page, trial: Trial) -> Callable[[str], None]:
    """A function that waits until the row of the job contains a text."""
    return lambda text: expect(
        page.locator("tr", has=page.get_by_role("link", name=trial.name, exact=True))
    ).to_contain_text(text)


def open_job(page: Page, trial: Trial) -> None:
    page.get_by_role("link", name=trial.name, exact=True).click()
    expect(page.get_by_role("heading", name=trial.name)).to_be_visible()


def test_the_address_can_be_opened_once(browser: Browser, address: str) -> None:
    with visitor(browser) as first, visitor(browser) as second:
        first.page.goto(address)
        expect(first.page.get_by_role("heading", name="Jobs")).to_be_visible()
        assert "token" not in first.page.url
        second.page.goto(address)
        expect(second.page.get_by_text("used before")).to_be_visible()
        second.page.goto(address.split("/login")[0] + "/jobs")
        expect(second.page.get_by_role("heading", name="Log in")).to_be_visible()


def test_a_job_is_seen_from_its_creation_to_its_end_without_a_reload(guest: Visitor, trial: Trial) -> None:
    guest.page.evaluate("window.isTheSamePage = true")
    trial.plays("master-0", ends(0, after=1))
    trial.submit(master())
    see = row(guest.page, trial)
    see("tfjob")
    see("Running")
    see("Done")
    trial.clear()
    expect(guest.page.get_by_role("link", name=trial.name, exact=True)).to_have_count(0)
    assert guest.page.evaluate("window.isTheSamePage")


@pytest.mark.long
def test_jobs_are_filtered_by_state_and_text(guest: Visitor, playground: Playground) -> None:
    done, running = playground.new_trial(), playground.new_trial()
    done.plays("master-0", ends(0))
    for each in (done, running):
        each.submit(master())
    row(guest.page, done)("Done")
    row(guest.page, running)("Running")
    guest.page.get_by_role("link", name=re.compile("Done")).click()
    expect(guest.page.get_by_role("link", name=running.name, exact=True)).to_have_count(0)
    row(guest.page, done)("Done")
    guest.page.get_by_role("link", name=re.compile("^All")).click()
    guest.page.get_by_label("Text", exact=True).fill(running.name)
    row(guest.page, running)("Running")
    expect(guest.page.get_by_role("link", name=done.name, exact=True)).to_have_count(0)
    assert f"text={running.name}" in guest.page.url
    for each in (done, running):
        each.clear()


def test_a_job_says_why_it_waits_in_the_words_of_explain(guest: Visitor, trial: Trial, plugin: Run) -> None:
    trial.submit(master(template=alone()))
    pod = trial.await_pod("master-0")["metadata"]["name"]
    set_pod_waiting(trial.jobs.api, trial.namespace, pod, "ErrImagePull", "no such image")
    row(guest.page, trial)("no such image")
    open_job(guest.page, trial)
    diagnosis = guest.page.get_by_label("Diagnosis")
    expect(diagnosis).to_contain_text("no such image")

    def is_said_by_both() -> bool:
        _, explained, _ = plugin("explain", trial.name)
        said = next(line for line in explained.splitlines() if line.startswith("now: ")).removeprefix("now: ")
        # What follows is the age of the report, which is another one at each moment.
        return said.partition(" (reported by")[0] in diagnosis.inner_text()

    eventually(is_said_by_both)
    expect(guest.page.get_by_role("rowheader", name="master-0")).to_be_visible()
    expect(guest.page.locator(".gantt rect.waiting")).to_have_count(1)


@pytest.mark.long
def test_a_job_is_suspended_resumed_scaled_and_deleted_by_buttons(guest: Visitor, trial: Trial) -> None:
    trial.submit(master(), workers(2), autoscaling={"minWorkers": 1, "maxWorkers": 4})
    row(guest.page, trial)("worker 2/2")
    open_job(guest.page, trial)
    guest.page.get_by_label("Size").fill("3")
    guest.page.get_by_role("button", name="Scale").click()
    expect(guest.page.locator("#view")).to_contain_text("worker 3/3")
    guest.page.get_by_label("Size").fill("9")
    guest.page.get_by_role("button", name="Scale").click()
    expect(guest.page.locator("#answer")).to_contain_text("maxWorkers")
    guest.page.get_by_role("button", name="Suspend").click()
    expect(guest.page.locator("#view")).to_contain_text("it is suspended")
    guest.page.get_by_role("button", name="Resume").click()
    expect(guest.page.locator("#view")).to_contain_text("worker 3/3")
    guest.page.once("dialog", lambda dialog: dialog.dismiss())
    guest.page.get_by_role("button", name="Delete").click()
    assert trial.jobs.get(trial.name)["metadata"]["name"] == trial.name
    guest.page.once("dialog", lambda dialog: dialog.accept())
    guest.page.get_by_role("button", name="Delete").click()
    expect(guest.page.get_by_role("heading", name="Jobs")).to_be_visible()
    expect(guest.page.get_by_role("link", name=trial.name, exact=True)).to_have_count(0)


def test_a_log_is_followed_searched_and_cannot_inject_anything(
    guest: Visitor, trial: Trial, logging_node: Kubelet
) -> None:
    trial.submit(master(template=pod_template(container(), nodeName=logging_node.name)))
    pod = trial.await_pod("master-0")["metadata"]["name"]
    logging_node.logs[pod] = f"step 1 loss=0.5\n\x1b[31mred\x1b[0m\n{HOSTILE}\n"
    set_pod_running(trial.jobs.api, trial.namespace, pod)
    row(guest.page, trial)("Running")
    open_job(guest.page, trial)
    log = guest.page.get_by_role("log")
    expect(log).to_contain_text("step 1 loss=0.5")
    expect(log.locator("span.fg-1").first).to_have_text("red")
    expect(log).to_contain_text("<script>document.title='taken'</script>")
    assert log.locator("img, script").count() == 0
    expect(guest.page.locator("figcaption")).to_contain_text("last 0.5")
    expect(guest.page.locator("figure canvas")).to_be_visible()
    guest.page.get_by_label("Search").fill("loss")
    guest.page.get_by_label("Only matches").check()
    expect(log.get_by_text("red", exact=True)).to_be_hidden()
    expect(log.get_by_text("step 1 loss=0.5")).to_be_visible()
    assert guest.page.title() == trial.name


def test_who_may_only_view_gets_no_buttons(
    browser: Browser, control_plane: Cluster, kubectl: Kubectl, trial: Trial, tmp_path: Path
) -> None:
    trial.submit(master(), workers(1))
    kubectl.must("apply", "--server-side", "-f", str(RBAC / "user-roles.yaml"))
    kubectl.must("create", "serviceaccount", "viewer")
    account = f"--serviceaccount={kubectl.namespace}:viewer"
    binding = f"{kubectl.namespace}-views"
    kubectl.must("create", "rolebinding", binding, "-n", trial.namespace, "--clusterrole=view", account)
    token = new_token(control_plane.api, kubectl.namespace, "viewer")
    kubeconfig = write_kubeconfig(control_plane, token, tmp_path / "kubeconfig")
    with dashboard(kubeconfig, "-n", trial.namespace) as address, visitor(browser) as viewer:
        viewer.page.goto(address)

        def is_listed() -> bool:  # Kubernetes adds the shipped rights to its role a moment later
            viewer.page.reload()
            return viewer.page.get_by_role("link", name=trial.name, exact=True).count() > 0

        eventually(is_listed, timeout=60)
        open_job(viewer.page, trial)
        expect(viewer.page.get_by_label("Diagnosis")).to_be_visible()
        for change in ("Suspend", "Resume", "Scale", "Delete"):
            expect(viewer.page.get_by_role("button", name=change)).to_have_count(0)
        expect(viewer.page.get_by_role("link", name="Clone")).to_have_count(0)
        viewer.page.goto(address.split("/login")[0] + "/jobs?namespace=")
        expect(viewer.page.get_by_text("You may not list jobs in all namespaces")).to_be_visible()


def test_the_page_of_a_job_that_does_not_exist_says_so(guest: Visitor, playground: Playground) -> None:
    base = guest.page.url.split("/jobs")[0]
    answer = guest.page.goto(f"{base}/jobs/{playground.jobs.namespace}/tfjob/nobody")
    assert answer is not None
    assert answer.status == 404
    expect(guest.page.get_by_text('tfjobs.kubeflow.org "nobody" not found')).to_be_visible()
    guest.errors.clear()  # the browser reports the status


@pytest.mark.long
def test_a_page_says_that_the_api_server_is_away_and_recovers_by_itself(
    browser: Browser, control_plane: Cluster, trial: Trial, tmp_path: Path
) -> None:
    trial.submit(master(), workers(1))
    with FaultProxy(control_plane.own.server) as proxy:
        kubeconfig = proxy.kubeconfig(tmp_path, control_plane.own.token)
        with dashboard(kubeconfig, "-n", trial.namespace) as address, visitor(browser) as guest:
            guest.page.goto(address)
            row(guest.page, trial)("Running")
            base = guest.page.url.split("/jobs")[0]
            proxy.is_refusing = True
            proxy.cut_all()
            for path in ("/cluster", f"/jobs/{trial.namespace}/tfjob/{trial.name}"):
                answer = guest.page.goto(base + path)
                assert answer is not None
                assert answer.status == 503
                expect(guest.page.get_by_role("heading", name="Not available")).to_be_visible()
                expect(guest.page.get_by_text("This page tries again every three seconds.")).to_be_visible()
            proxy.is_refusing = False
            expect(guest.page.get_by_label("Diagnosis")).to_be_visible()
            expect(guest.page.get_by_role("heading", name="Not available")).to_have_count(0)
            # The list, whose watches were cut, has gone on too.
            guest.page.goto(f"{base}/jobs?namespace={trial.namespace}")
            trial.end("master-0")
            row(guest.page, trial)("Done")


def test_an_age_grows_although_nothing_changes(guest: Visitor, trial: Trial) -> None:
    trial.submit(master(), suspend=True)
    row(guest.page, trial)("Suspended")
    age = guest.page.locator("tr").filter(has_text=trial.name).locator("time")
    first = age.inner_text()
    expect(age).not_to_have_text(first)
    assert re.fullmatch(r"\d+s", age.inner_text())
