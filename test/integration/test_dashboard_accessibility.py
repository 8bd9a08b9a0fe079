"""Each page of the dashboard in its full state: axe-core, a phone, both colour schemes, keyboard, screen reader."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Locator, Page, expect

from helpers.browser import Visitor, visitor
from helpers.cluster import Cluster, clear_namespace, new_namespace, new_token, set_pod_running
from helpers.dashboards import dashboard, expect_heading, faults, log_in, origin_of, shared_dashboard
from helpers.dashboardscene import TFJOB_NAME, TRAINJOB_NAME, Scene
from helpers.kubectl import Kubectl
from helpers.logkubelet import Kubelet
from helpers.manifests import container, master, pod_template, tfjob, workers
from helpers.playground import Playground, Trial
from helpers.poll import eventually
from localcluster.faultproxy import FaultProxy

pytestmark = pytest.mark.cluster

PHONE, DESK = 360, 1280
# A sentence with a word that no line of a phone can hold.
WORDS = "Waits for capacity: 8 of 16 nodes with " + "a-very-long-name-of-a-resource-" * 6
# Light grey on white would be found, since colours differ by scheme.
LOG = "step 1 loss=0.5\n" + "".join(f"\x1b[{code}mcolour {code}\x1b[0m\n" for code in (*range(30, 38), *range(90, 98)))
LOG += "".join(f"\x1b[{code}mbackground {code}\x1b[0m\n" for code in (*range(40, 48), *range(100, 108)))
LOG += "step 2 loss=0.25\n" + "x" * 500 + "\n"
ROWS = 101


@pytest.fixture(scope="module")
def scene(control_plane: Cluster, playground: Playground) -> Iterator[Scene]:
    """A namespace that fills each page, with a zone for its node."""
    namespace = new_namespace(control_plane.api)
    found = Scene(control_plane.api, namespace, f"scene-{secrets.token_hex(4)}", "zone-of-the-scene", WORDS)
    found.build()
    yield found
    found.clear()
    clear_namespace(control_plane.api, namespace)


@pytest.fixture(scope="module")
def entered(browser: Browser, control_plane: Cluster, playground: Playground) -> Iterator[Visitor]:
    """A window that has opened the address of a dashboard; other windows take its cookies."""
    with dashboard(control_plane.kubeconfig, "-n", playground.jobs.namespace) as address, visitor(browser) as first:
        first.page.goto(address)
        expect_heading(first.page, "Jobs")
        yield first


@pytest.fixture
def guest(browser: Browser, entered: Visitor) -> Iterator[Visitor]:
    """A window on the page of all jobs; its console must stay without errors."""
    with visitor(browser, same_as=entered) as guest:
        guest.page.goto(origin_of(entered.page.url) + "/jobs")
        expect_heading(guest.page, "Jobs")
        yield guest
        assert faults(guest.errors) == []


def expect_accessible(page: Page) -> None:
    """axe-core finds nothing, on a phone and a desk, in light and dark; nothing is wider than the phone.

    The schemes differ in colours alone, so only their contrast is examined in both. axe-core examines that of texts;
    bars and the borders of fields need three to one (WCAG 1.4.11).
    """
    for width in (DESK, PHONE):
        page.set_viewport_size({"width": width, "height": 900})
        _expect_no_violation(page, "light", {"resultTypes": ["violations"]})
        _expect_no_violation(page, "dark", {"resultTypes": ["violations"], "runOnly": ["color-contrast"]})
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width, f"{page.url} at {width}"
        assert heading_levels_skipped(page) == [], page.url


def _expect_no_violation(page: Page, scheme: Literal["light", "dark"], options: dict[str, list[str]]) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    results = Axe().run(page, options=options)
    assert results.violations_count == 0, f"{page.url} {page.viewport_size} {scheme}: {results.generate_report()}"
    assert page.evaluate(_FAINT) == [], f"{page.url} {scheme}"


_FAINT = """() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const channel = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    const color = numbers(getComputedStyle(element).backgroundColor);
    return color[3] === 0 ? behind(element.parentElement) : color;
  };
  const contrast = (element, color) => {
    const [low, high] = [numbers(color), behind(element.parentElement)].map(luminance).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const name = (element) => element.className.baseVal ?? element.name;
  const colors = (selector, property) => [...document.querySelectorAll(selector)]
    .map((element) => [name(element), contrast(element, getComputedStyle(element)[property])]);
  const bars = colors("rect:not(.texture, .sprite *)", "fill");
  return [...bars, ...colors("input:not([type=hidden]), select, textarea", "borderTopColor")]
    .filter(([, ratio]) => ratio < 3);
}"""


def heading_levels_skipped(page: Page) -> list[str]:
    """The headings, as a screen reader lists them, that are more than one level below the one before."""
    levels = [(int(node["properties"]["level"]), node["name"]) for node in read_out(page) if node["role"] == "heading"]
    return [name for (above, _), (level, name) in zip([(0, ""), *levels], levels, strict=False) if level > above + 1]


def read_out(page: Page) -> list[dict[str, Any]]:
    """What Chromium tells assistive technology: role, name and properties of each node that it does not ignore."""
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    return [
        {
            "role": node["role"]["value"],
            "name": node.get("name", {}).get("value", ""),
            "properties": {entry["name"]: entry["value"].get("value") for entry in node.get("properties", ())},
        }
        for node in nodes
        if not node["ignored"]
    ]


def expect_tables(page: Page, *headers: str) -> None:
    """On a phone as on a desk, rows have headers with these names among others, and cells the headers of columns."""
    for width in (DESK, PHONE):
        page.set_viewport_size({"width": width, "height": 900})
        nodes = read_out(page)
        assert {node["role"] for node in nodes} >= {"table", "row", "columnheader", "rowheader", "cell"}, width
        names = [node["name"] for node in nodes if node["role"] == "rowheader"]
        assert [header for header in headers if not any(header in name for name in names)] == [], (width, names)


def test_the_page_of_jobs_with_reasons_progress_and_losses(guest: Visitor, scene: Scene) -> None:
    page = guest.page
    page.goto(f"{origin_of(page.url)}/jobs?namespace={scene.namespace}")
    expect(page.locator("tbody tr")).to_have_count(2)
    for loss in (0.4, 0.3):
        scene.write_statuses(loss=loss)
        expect(page.locator('td[data-label="Loss"]', has_text=str(loss))).to_have_count(1)
    expect(page.locator("svg.spark")).to_be_visible()
    expect(page.locator("progress")).to_have_count(2)
    expect(page.locator("td.reason").first).to_contain_text("a-very-long-name")
    expect_accessible(page)
    expect_tables(page, TFJOB_NAME, TRAINJOB_NAME)
    # The viewport is that of a phone now.
    page.get_by_label("Select all shown").check()
    page.locator("#saved summary").click()
    expect(page.get_by_role("region", name="The cluster")).to_be_visible()
    expect_accessible(page)


@pytest.mark.parametrize("name", [TFJOB_NAME, TRAINJOB_NAME])
def test_the_page_of_a_job_with_a_chart_conditions_events_timeline_and_manifest(
    guest: Visitor, scene: Scene, name: str
) -> None:
    page = guest.page
    page.goto(f"{origin_of(page.url)}/jobs/{scene.namespace}/{name.removeprefix('full-')}/{name}")
    for summary in ("Conditions", "Events", "Timeline", "Manifest"):
        page.locator("summary", has_text=summary).click()
    expect(page.locator(".gantt rect.running").first).to_be_visible()
    expect(page.locator(".timeline .warning").first).to_be_visible()
    for section in ("Conditions", "Events"):
        expect(page.get_by_role("region", name=section)).to_contain_text("a-very-long-name")
    expect_accessible(page)
    # What a person has opened stays open when the job changes.
    scene.write_statuses(loss=0.2)
    fields = page.locator("#view .fields")
    before = fields.inner_text()
    scene.api.patch(path_of(scene, name), {"status": {"restarts": 7}})
    expect(fields).not_to_have_text(before)
    expect(page.locator("pre.manifest")).to_be_visible()
    expect(page.locator(".timeline")).to_be_visible()


def path_of(scene: Scene, name: str) -> str:
    version, plural = ("v1alpha1", "tfjobs") if name == TFJOB_NAME else ("v2alpha1", "trainjobs")
    return f"/apis/kubeflow.org/{version}/namespaces/{scene.namespace}/{plural}/{name}/status"


def test_the_page_of_a_job_with_replicas_metrics_and_a_log_in_colours(
    guest: Visitor, trial: Trial, logging_node: Kubelet
) -> None:
    page = open_logged_job(guest, trial, logging_node)
    log = page.get_by_role("log")
    expect(log.locator(".fg-1").first).to_have_text("colour 31")
    expect(page.locator("figure canvas")).to_be_visible()
    expect(page.get_by_role("region", name="Replicas")).to_contain_text("worker-0")
    page.get_by_label("Search").fill("colour")
    expect(page.locator("#log-hits")).to_have_text("16 lines")
    expect_accessible(page)
    expect_tables(page, "master-0", "worker-0")
    for part in ("Charts", "Log"):
        page.get_by_role("tab", name=part).click()
        expect_accessible(page)


def open_logged_job(guest: Visitor, trial: Trial, node: Kubelet) -> Page:
    """The page of a running job with two replicas, whose master has printed `LOG`."""
    template = pod_template(container(), nodeName=node.name)
    autoscaling = {"minWorkers": 1, "maxWorkers": 4}
    trial.submit(master(template=template), workers(1, template=template), autoscaling=autoscaling)
    for replica in ("master-0", "worker-0"):
        pod = trial.await_pod(replica)["metadata"]["name"]
        node.logs[pod] = LOG if replica == "master-0" else "the worker's line\n"
        set_pod_running(trial.jobs.api, trial.namespace, pod)
    trial.await_phase("Running")
    guest.page.goto(f"{origin_of(guest.page.url)}/jobs/{trial.namespace}/tfjob/{trial.name}")
    expect(guest.page.get_by_role("log")).to_contain_text("step 2 loss=0.25")
    return guest.page


def test_the_queue_and_the_cluster(guest: Visitor, scene: Scene) -> None:
    page, origin = guest.page, origin_of(guest.page.url)
    page.goto(f"{origin}/queue?namespace={scene.namespace}")
    expect(page.get_by_role("region", name="Waiting gangs").get_by_role("article")).to_have_count(2)
    expect(page.get_by_role("region", name="Shares of namespaces").locator("tbody tr")).to_have_count(1)
    expect_accessible(page)
    expect_tables(page, scene.namespace)
    page.goto(f"{origin}/cluster?namespace={scene.namespace}")
    expect(page.get_by_role("heading", name=f"Zone {scene.zone}")).to_be_visible()
    expect(page.get_by_label(f"Node {scene.node}", exact=True)).to_contain_text(TFJOB_NAME)
    expect_accessible(page)


def test_the_form_of_a_new_job_with_problems(guest: Visitor) -> None:
    page = guest.page
    page.get_by_role("link", name="New job").click()
    fields = [page.get_by_label(label, exact=True) for label in ("Nodes", "CPU", "GPUs of each node")]
    for field in fields:
        field.fill("many")
    page.get_by_role("button", name="Check", exact=True).click()
    # The API server's answer may name more of them.
    for field in fields:
        expect(field).to_have_attribute("aria-invalid", "true")
    expect_accessible(page)
    page.get_by_label("Manifest", exact=True).fill("kind: [" + "x" * 300)
    page.get_by_label("Manifest", exact=True).blur()
    expect(page.locator("#problem-yaml")).to_contain_text("cannot be read")
    expect_accessible(page)


def test_the_login_and_the_pages_of_problems(
    browser: Browser, control_plane: Cluster, kubectl: Kubectl, tmp_path: Path
) -> None:
    kubectl.must("create", "serviceaccount", "stranger")
    token = new_token(control_plane.api, kubectl.namespace, "stranger")
    with (
        FaultProxy(control_plane.own.server) as proxy,
        shared_dashboard(control_plane, tmp_path, f"--api-server={proxy.url}") as shared,
        visitor(browser) as guest,
    ):
        page = guest.page
        log_in(page, shared.address, "not.a.token")
        expect(page.get_by_role("alert")).to_contain_text("does not accept this token")
        expect_accessible(page)
        log_in(page, shared.address, token)
        expect(page.locator(".who")).to_contain_text("stranger")
        for path, heading in (
            (f"/jobs/{kubectl.namespace}/tfjob/any", "You may not see this"),
            ("/nothing", "Not found"),
            (f"/jobs?namespace={kubectl.namespace}", "Jobs"),
        ):
            page.goto(shared.address + path)
            expect_heading(page, heading)
            expect_accessible(page)
        proxy.is_refusing = True
        proxy.cut_all()
        page.goto(f"{shared.address}/jobs/{kubectl.namespace}/tfjob/any")
        expect_heading(page, "Not available")
        expect_accessible(page)
        # The page that tries again leaves the focus where it is.
        back = page.get_by_role("main").get_by_role("link", name="Jobs")
        back.focus()
        for _ in range(2):
            page.wait_for_event("requestfinished")
        expect(back).to_be_focused()


def test_a_change_is_announced_and_nothing_else(guest: Visitor, scene: Scene) -> None:
    page = guest.page
    page.goto(f"{origin_of(page.url)}/jobs?namespace={scene.namespace}")
    expect(page.locator("tbody tr")).to_have_count(2)
    total = page.locator("#total")
    expect(total).to_have_text("")
    page.get_by_label("Kind", exact=True).select_option("tfjob")
    expect(total).to_have_text("1 job")
    page.get_by_label("Text", exact=True).fill("nothing has this")
    expect(total).to_have_text("0 jobs")
    page.goto(f"{origin_of(page.url)}/jobs/{scene.namespace}/tfjob/{TFJOB_NAME}")
    diagnosis = page.get_by_label("Diagnosis")
    expect(diagnosis).to_have_attribute("aria-live", "polite")
    diagnosis.evaluate("element => { element.isTheSame = true; }")
    scene.api.patch(path_of(scene, TFJOB_NAME).removesuffix("/status"), {"spec": {"suspend": True}})
    expect(diagnosis).to_contain_text("the controller has not processed the last change")
    assert diagnosis.evaluate("element => element.isTheSame")


# The keyboard alone

_FOCUSED = "element => element === document.activeElement"
_OUTLINE = """() => {
  const style = getComputedStyle(document.activeElement);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
}"""
MAX_TABS = 80


def tab_to(page: Page, target: Locator, key: str = "Tab") -> None:
    """Presses Tab (or Shift+Tab) until the element has the focus, which must be visible at each step."""
    expect(target).to_be_visible()
    for _ in range(MAX_TABS):
        page.keyboard.press(key)
        if page.evaluate("document.activeElement === document.body"):
            continue  # the focus has left the page, and enters it again
        assert page.evaluate(_OUTLINE), page.evaluate("document.activeElement.outerHTML")
        if target.evaluate(_FOCUSED):
            return
    raise AssertionError(f"{target} is not reached by {MAX_TABS} times Tab")


def press(page: Page, target: Locator, key: str = "Enter") -> None:
    tab_to(page, target)
    page.keyboard.press(key)


def type_into(page: Page, target: Locator, text: str) -> None:
    tab_to(page, target)
    page.keyboard.press("Control+A")
    page.keyboard.type(text)


def test_a_job_is_suspended_resumed_scaled_cloned_and_deleted_by_keys(
    guest: Visitor, trial: Trial, logging_node: Kubelet
) -> None:
    page = open_logged_job(guest, trial, logging_node)
    view = page.locator("#view")
    press(page, page.get_by_role("button", name="Suspend"))
    expect(view).to_contain_text("it is suspended")
    press(page, page.get_by_role("button", name="Resume"), "Space")
    expect(page.get_by_role("button", name="Suspend")).to_be_visible()
    type_into(page, page.get_by_label("Size"), "2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Replicas")).to_contain_text("worker-1")
    press(page, page.get_by_role("link", name="Clone"))
    expect(page.get_by_label("Name", exact=True)).to_have_value(f"{trial.name}-copy")
    press(page, page.get_by_role("button", name="Check", exact=True))
    expect(page.get_by_text("The API server would create")).to_be_visible()
    page.goto(f"{origin_of(page.url)}/jobs/{trial.namespace}/tfjob/{trial.name}")
    asked: list[str] = []

    def confirm(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept()

    page.once("dialog", confirm)
    press(page, page.get_by_role("button", name="Delete"))
    expect_heading(page, "Jobs")
    assert asked == [f"Delete tfjob {trial.namespace}/{trial.name} and its pods?"]


def test_a_log_is_chosen_searched_and_scrolled_by_keys(guest: Visitor, trial: Trial, logging_node: Kubelet) -> None:
    page = open_logged_job(guest, trial, logging_node)
    log = page.get_by_role("log")
    tab_to(page, page.get_by_label("Replica", exact=True))
    page.keyboard.press("ArrowDown")
    expect(log).to_contain_text("the worker's line")
    page.keyboard.press("ArrowUp")
    expect(log).to_contain_text("step 2 loss=0.25")
    type_into(page, page.get_by_label("Search"), "loss=0.25")
    expect(log.locator("div.hit")).to_have_count(1)
    press(page, page.get_by_label("Only matches"), "Space")
    expect(log.get_by_text("step 1 loss=0.5")).to_be_hidden()
    page.keyboard.press("Space")
    expect(log.get_by_text("step 1 loss=0.5")).to_be_visible()
    press(page, page.get_by_label("Follow"), "Space")
    expect(page.get_by_label("Follow")).not_to_be_checked()
    # The chart, which moves the log, is there.
    expect(page.locator("figure canvas")).to_be_visible()
    tab_to(page, log)
    expect(log).to_be_focused()
    # A key that is pressed while the browser still scrolls may be lost.
    eventually(lambda: page.keyboard.press("End") or log.evaluate("each => each.scrollTop") > 0)
    eventually(lambda: page.keyboard.press("Home") or log.evaluate("each => each.scrollTop") == 0)
    press(page, page.locator("summary", has_text="Timeline"))
    expect(page.locator(".timeline")).to_be_visible()
    press(page, page.locator("summary", has_text="Manifest"), "Space")
    expect(page.locator("pre.manifest")).to_be_visible()


@pytest.fixture
def many_jobs(control_plane: Cluster, namespace: str) -> str:
    """A namespace with more jobs than a page has rows; no controller runs in it."""
    for index in range(ROWS):
        manifest = tfjob(master(), name=f"job-{index:03d}", suspend=True)
        control_plane.api.create(f"/apis/kubeflow.org/v1alpha1/namespaces/{namespace}/tfjobs", manifest)
    return namespace


def test_jobs_are_filtered_sorted_and_paged_by_keys(guest: Visitor, kubectl: Kubectl, many_jobs: str) -> None:
    page = guest.page
    press(page, page.get_by_role("link", name="Queue", exact=True))
    expect_heading(page, "Queue")
    press(page, page.get_by_role("link", name="Jobs", exact=True))
    expect_heading(page, "Jobs")
    type_into(page, page.get_by_label("Namespace", exact=True), many_jobs)
    page.keyboard.press("Tab")
    expect(page.locator("tbody tr")).to_have_count(100)
    expect(page.get_by_label("Kind", exact=True)).to_be_focused()
    # Not by its name: a select forgets the letters that were typed more than a second ago.
    page.keyboard.press("End")
    expect(page).to_have_url(re.compile("kind=trainjob"))
    expect(page.locator("tbody tr")).to_have_count(0)
    page.keyboard.press("Home")
    expect(page.locator("tbody tr")).to_have_count(100)
    press(page, page.get_by_role("columnheader", name="Job").get_by_role("link"))
    expect(page.locator("tbody tr th").first).to_contain_text("job-000")
    tab_to(page, page.get_by_role("link", name="Next", exact=True), "Shift+Tab")  # from the top to the bottom
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(ROWS - 100)
    tab_to(page, page.get_by_role("link", name="Previous", exact=True), "Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(100)
    type_into(page, page.get_by_label("Text", exact=True), "job-042")
    expect(page.locator("tbody tr")).to_have_count(1)
    press(page, page.get_by_role("link", name="job-042", exact=True))
    expect(page.get_by_label("Diagnosis")).to_be_visible()


def test_the_content_is_reached_without_the_navigation_and_a_person_logs_out_by_keys(
    browser: Browser, control_plane: Cluster, kubectl: Kubectl, tmp_path: Path
) -> None:
    kubectl.must("create", "serviceaccount", "member")
    token = new_token(control_plane.api, kubectl.namespace, "member")
    with shared_dashboard(control_plane, tmp_path) as shared, visitor(browser) as guest:
        page = guest.page
        page.goto(shared.address)
        type_into(page, page.get_by_label("Token"), token)
        page.keyboard.press("Enter")
        expect_heading(page, "Jobs")
        page.keyboard.press("Tab")
        skip = page.get_by_role("link", name="Skip to the content")
        expect(skip).to_be_focused()
        expect(skip).to_be_in_viewport()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(page.get_by_label("Namespace", exact=True)).to_be_focused()
        page.goto(f"{shared.address}/queue")
        press(page, page.get_by_role("button", name="Log out"))
        expect_heading(page, "Log in")
