"""The pages of ended jobs in a real browser: a list of many, one job that no longer exists, and who may see them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from helpers.browser import Visitor, visitor
from helpers.cluster import Cluster
from helpers.dashboards import HOSTILE, account, dashboard, faults, log_in, origin_of, shared_dashboard
from helpers.kubectl import Kubectl
from integration.test_dashboard_accessibility import expect_accessible
from tfjob_controller.client.diagnostics.timeline import TimelineEntry
from tfjob_controller.client.history.filesystems import Directory
from tfjob_controller.client.history.record import LogFile, Record
from tfjob_controller.client.history.store import HistoryStore

pytestmark = pytest.mark.cluster

# More than a page shows.
MANY = 103
SPACE, OTHER = "history-team", "history-other"
UID = "0a1b2c3d-0000-4000-8000-000000000000"


def record(number: int, name: str, namespace: str = SPACE, uid: str = "", state: str = "Succeeded") -> Record:
    ended = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
    return Record("kubeflow.org/v2alpha1", "TrainJob", namespace, name, uid or f"uid-{number}", state, ended)


def full(text: str = "GPU memory is full") -> Record:
    """A job with all that a record can have; the text stands wherever any text can."""
    manifest = {"apiVersion": "kubeflow.org/v2alpha1", "kind": "TrainJob", "spec": {"words": text}}
    return msgspec.structs.replace(
        record(3500, "finetune", uid=UID, state="Failed"),
        phase="Failed",
        reason=f"node-0 failed: {text}",
        created="2025-12-31T23:00:00Z",
        started="2025-12-31T23:00:10Z",
        body=msgspec.Raw(msgspec.json.encode(manifest)),
        timeline=[
            TimelineEntry("2026-01-01T00:00:01Z", f"pod/{text}", "container", f"ended: {text}", text, is_warning=True)
        ],
        metrics={"loss": "0.25"},
        logged_metrics=["loss"],
        logs=[LogFile("node-0", "node", 100), LogFile("node-0", "sidecar", 100, is_cut=True)],
        unread=[f"the log of node-1: {text}"],
    )


def write_full(store: HistoryStore, text: str = "GPU memory is full") -> None:
    job = full(text)
    lines = [f"2026-01-01T00:00:{step:02}.5Z step {step} loss={1 / (step + 1):.4f} {text}\n" for step in range(20)]
    store.write_log(job.entry, job.logs[0], "".join(lines).encode())
    store.write_log(job.entry, job.logs[1], f"2026-01-01T00:00:00Z \x1b[31mside\x1b[0m {text}\n".encode())
    store.write(job)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> HistoryStore:
    store = HistoryStore(Directory(tmp_path_factory.mktemp("history")))
    for number in range(MANY):
        store.write(record(number, f"train-{number:03}"))
    store.write(record(1, "secret-project", OTHER))
    write_full(store)
    return store


@pytest.fixture(scope="module")
def entered(browser: Browser, control_plane: Cluster, administrator: Kubectl, store: HistoryStore) -> Iterator[Visitor]:
    flags = ("-n", SPACE, f"--history={store}")
    with dashboard(control_plane.kubeconfig, *flags) as address, visitor(browser) as first:
        first.page.goto(address)
        expect(first.page.get_by_role("heading", name="Jobs")).to_be_visible()
        yield first


@pytest.fixture
def page(browser: Browser, entered: Visitor) -> Iterator[Page]:
    with visitor(browser, same_as=entered) as guest:
        guest.page.goto(f"{origin_of(entered.page.url)}/history?namespace={SPACE}")
        yield guest.page
        assert faults(guest.errors) == []


def test_ended_jobs_are_listed_newest_first_in_pages_and_filtered(page: Page) -> None:
    names = page.locator("tbody th a")
    expect(names).to_have_count(100)
    expect(names.nth(0)).to_have_text("finetune")
    expect(names.nth(1)).to_have_text("train-102")
    expect(page.get_by_text(f"{MANY + 1} ended jobs")).to_be_visible()
    page.get_by_role("link", name="Next").click()
    expect(names).to_have_text(["train-003", "train-002", "train-001", "train-000"])
    page.get_by_label("Name", exact=True).fill("train-05")
    expect(names).to_have_text([f"train-05{digit}" for digit in reversed(range(10))])
    page.get_by_label("Name", exact=True).fill("")
    page.get_by_label("Namespace").fill(OTHER)
    page.get_by_label("Namespace").blur()
    expect(names).to_have_text(["secret-project"])
    page.get_by_label("Namespace").fill("")
    page.get_by_label("Namespace").blur()
    expect(names.first).to_have_text("finetune")


def test_a_job_that_no_longer_exists_is_read_with_its_log_chart_timeline_and_manifest(page: Page) -> None:
    page.get_by_role("link", name="finetune").click()
    expect(page.get_by_role("heading", name="finetune")).to_be_visible()
    expect(page.locator(".pill.failed")).to_have_text("failed")
    expect(page.get_by_text("Reason: node-0 failed: GPU memory is full")).to_be_visible()
    expect(page.get_by_text("Not kept: the log of node-1")).to_be_visible()
    expect(page.locator("#plots figcaption")).to_contain_text("loss")
    log = page.get_by_role("log")
    expect(log.locator("div").first).to_have_text("step 0 loss=1.0000 GPU memory is full")
    expect(page.locator("#log-state")).to_have_text("this is the end of the log")
    page.get_by_label("Search").fill("step 7 ")
    expect(page.locator("#log-hits")).to_have_text("1 line")
    page.get_by_label("Search").fill("")
    page.get_by_label("Container").select_option("node-0.sidecar")
    expect(log.locator(".fg-1")).to_have_text("side")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert Path(download.value.path()).read_text() == "\x1b[31mside\x1b[0m GPU memory is full\n"
    page.get_by_label("Container").select_option("node-0.node")
    page.get_by_label("Times").check()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert Path(download.value.path()).read_text().startswith("2026-01-01T00:00:00.5Z step 0")
    page.get_by_text("Timeline", exact=True).click()
    expect(page.locator(".timeline li.warning")).to_contain_text("ended: GPU memory is full")
    page.get_by_text("Manifest", exact=True).click()
    expect(page.locator("pre.manifest")).to_contain_text("words: GPU memory is full")


def test_both_pages_are_accessible_in_both_schemes_and_fit_a_phone(browser: Browser, entered: Visitor) -> None:
    with visitor(browser, same_as=entered) as guest:
        page = guest.page
        page.goto(f"{origin_of(entered.page.url)}/history?namespace={SPACE}")
        expect(page.locator("tbody th a").first).to_be_visible()
        expect_accessible(page)
        page.get_by_role("link", name="finetune").click()
        expect(page.locator("#log div").first).to_be_visible()
        page.get_by_text("Timeline", exact=True).click()
        page.get_by_text("Manifest", exact=True).click()
        expect_accessible(page)
        assert faults(guest.errors) == []


def test_whatever_a_record_has_is_text(page: Page, store: HistoryStore) -> None:
    write_full(store, HOSTILE)
    try:
        page.goto(f"{origin_of(page.url)}/history/{SPACE}/TrainJob/finetune/{UID}")
        expect(page.get_by_role("log").locator("div").first).to_contain_text("<img src=x onerror")
        page.get_by_text("Timeline", exact=True).click()
        expect(page.locator(".timeline li")).to_contain_text("<script>")
        assert page.title() == "finetune, ended"
        assert page.locator("main img, main script").count() == 0
    finally:
        write_full(store)


def test_a_job_that_the_history_does_not_have_is_told(page: Page) -> None:
    for path in (f"{SPACE}/TrainJob/gone/{UID}", f"{SPACE}/TrainJob/finetune/other", f"{SPACE}/NoJob/finetune/{UID}"):
        page.goto(f"{origin_of(page.url)}/history/{path}")
        expect(page.get_by_text("history has no such job").or_(page.get_by_text("you may not get"))).to_be_visible()


def test_people_see_what_the_api_server_lets_them_get(
    browser: Browser, control_plane: Cluster, kubectl: Kubectl, store: HistoryStore, tmp_path: Path
) -> None:
    api = control_plane.api
    for space in (SPACE, OTHER):
        api.create_if_missing("/api/v1/namespaces", {"metadata": {"name": space}})
    rules = [{"apiGroups": ["kubeflow.org"], "resources": ["tfjobs", "trainjobs"], "verbs": ["get", "list", "watch"]}]
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    api.create_if_missing(roles, {"metadata": {"name": "history-jobs-only"}, "rules": rules})
    token = account(kubectl, api, "jobs-only", SPACE, "history-jobs-only")
    with (
        shared_dashboard(control_plane, tmp_path, f"--history={store}") as shared,
        visitor(browser) as guest,
    ):
        page = guest.page
        log_in(page, shared.address, token)
        expect(page.get_by_role("link", name="History")).to_be_visible()
        page.goto(f"{shared.address}/history?namespace={SPACE}")
        expect(page.locator("tbody th a")).to_have_count(100)
        page.goto(f"{shared.address}/history?namespace={OTHER}")
        expect(page.get_by_text("You may not get the jobs of namespace")).to_be_visible()
        assert "secret-project" not in page.content()
        page.goto(f"{shared.address}/history?namespace=")
        expect(page.get_by_text("choose a namespace")).to_be_visible()
        assert "secret-project" not in page.content()
        page.goto(f"{shared.address}/history/{OTHER}/TrainJob/secret-project/uid-1")
        expect(page.get_by_text(f"you may not get TrainJob in namespace {OTHER}")).to_be_visible()
        job = f"{shared.address}/history/{SPACE}/TrainJob/finetune/{UID}"
        page.goto(job)
        expect(page.get_by_text("You may not get pods/log in this namespace")).to_be_visible()
        for part in ("log?replica=node-0.node", "log/file?replica=node-0.node", "metrics"):
            answer = guest.context.request.get(f"{job}/{part}")
            assert (answer.status, "you may not get pods/log" in answer.text()) == (400, True)


def test_without_a_history_there_is_no_such_page(
    browser: Browser, control_plane: Cluster, administrator: Kubectl
) -> None:
    with dashboard(control_plane.kubeconfig, "-n", "default") as address, visitor(browser) as guest:
        guest.page.goto(address)
        expect(guest.page.get_by_role("link", name="Queue")).to_be_visible()
        expect(guest.page.get_by_role("link", name="History")).to_have_count(0)
        guest.page.goto(f"{origin_of(guest.page.url)}/history")
        expect(guest.page.get_by_text("This dashboard has no history of ended jobs")).to_be_visible()
