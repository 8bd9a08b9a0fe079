"""The page of a job in a real browser: its head, charts, logs, the lanes of its replicas, and what is folded below."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from helpers.browser import Visitor, visitor
from helpers.cluster import Cluster, delete_service_account, new_service_account, set_pod_running, write_kubeconfig
from helpers.dashboards import dashboard, expect_heading, faults, origin_of
from helpers.logkubelet import Kubelet
from helpers.manifests import container, master, pod_template, workers
from helpers.playground import Playground, Trial
from helpers.poll import eventually

pytestmark = pytest.mark.cluster

PHONE, DESK, HEIGHT = 400, 1280, 900
STEPS = 120
# The loss falls over three powers of ten, and alternates around that.
LOSSES = [10 ** (1 - 3 * step / STEPS) * (1.5 if step % 2 else 0.5) for step in range(1, STEPS + 1)]
LOG = "".join(f"step={step} loss={loss:.6f} accuracy={step / STEPS:.3f}\n" for step, loss in enumerate(LOSSES, 1))
TIME = "2026-01-02T03:04:05.123456789Z"


@pytest.fixture(scope="module")
def entered(browser: Browser, control_plane: Cluster, playground: Playground) -> Iterator[Visitor]:
    """A window that has opened the address of a dashboard; other windows take its cookies."""
    with dashboard(control_plane.kubeconfig, "-n", playground.jobs.namespace) as address, visitor(browser) as first:
        first.page.goto(address)
        expect_heading(first.page, "Jobs")
        yield first


@pytest.fixture
def guest(browser: Browser, entered: Visitor) -> Iterator[Visitor]:
    """A window whose console must stay without errors."""
    with visitor(browser, same_as=entered) as guest:
        guest.page.goto(origin_of(entered.page.url) + "/jobs")
        yield guest
        assert faults(guest.errors) == []


@pytest.fixture
def page(guest: Visitor, trial: Trial, logging_node: Kubelet) -> Page:
    """The page of a running job of a master and a worker, whose master has printed `LOG` beside other containers."""
    template = pod_template(
        container(), container("reporter"), initContainers=[container("fetch-data")], nodeName=logging_node.name
    )
    trial.submit(
        master(template=template), workers(1, template=template), autoscaling={"minWorkers": 1, "maxWorkers": 4}
    )
    for replica in ("master-0", "worker-0"):
        pod = trial.await_pod(replica)["metadata"]["name"]
        logging_node.logs[pod] = LOG if replica == "master-0" else "the worker's line\n"
        logging_node.logs[f"{pod}/fetch-data"] = f"{replica} has fetched the data\n"
        logging_node.logs[f"{pod}/reporter"] = f"{replica} has reported\n"
        logging_node.logs[f"{pod}/tensorflow/previous"] = f"{replica} failed before\n"
        set_pod_running(trial.jobs.api, trial.namespace, pod)
    logging_node.time = TIME
    trial.await_phase("Running")
    open_page(guest.page, trial)
    return guest.page


def open_page(page: Page, trial: Trial) -> None:
    page.goto(f"{origin_of(page.url)}/jobs/{trial.namespace}/tfjob/{trial.name}")
    expect(page.get_by_role("log")).to_contain_text(f"step={STEPS} ")


def chart(page: Page, name: str) -> Any:
    return page.locator("figure", has=page.get_by_text(name, exact=True))


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_the_head_stays_while_the_page_scrolls(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": HEIGHT})
    for part in page.locator("summary").all():
        part.click()
    page.evaluate("scrollTo(0, 0)")
    expect(page.locator("#jobhead")).not_to_have_class(re.compile("small"))
    head, name = page.locator("#jobhead"), page.get_by_role("heading", level=1)
    tall = head.bounding_box()
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(head).to_have_class(re.compile("small"))
    small, top = head.bounding_box(), page.locator("header.top").bounding_box()
    assert tall
    assert small
    assert top
    assert small["height"] < tall["height"]
    assert math.isclose(small["y"], max(0, top["y"] + top["height"]), abs_tol=2)
    if width == PHONE:
        assert small["y"] + small["height"] <= HEIGHT / 3
    for shown in (name, page.get_by_label("Diagnosis"), page.get_by_role("button", name="Suspend")):
        expect(shown).to_be_in_viewport()
    # What is below does not move when the head becomes small.
    page.evaluate("scrollTo(0, 0)")
    expect(head).not_to_have_class(re.compile("small"))
    assert head.bounding_box() == tall
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width


def test_what_is_typed_into_the_size_survives_a_change_of_the_job(page: Page, trial: Trial) -> None:
    page.get_by_label("Size").fill("3")
    trial.end("worker-0")
    expect(page.get_by_role("row", name="worker-0")).to_contain_text("Succeeded")
    expect(page.get_by_label("Size")).to_have_value("3")


def test_a_log_scale_and_smoothing_change_the_drawing_and_are_kept(page: Page, trial: Trial) -> None:
    loss = chart(page, "loss")
    expect(loss).to_have_attribute("data-scale", "linear")
    expect(loss).to_have_attribute("data-points", str(STEPS))
    expect(loss.locator("figcaption")).to_contain_text(f"last {LOSSES[-1]:.4g}")
    plain = loss.locator("canvas").screenshot()
    page.get_by_label("Log scale").check()
    expect(loss).to_have_attribute("data-scale", "log")
    assert loss.locator("canvas").screenshot() != plain
    page.get_by_label("Smoothing").fill("0.9")
    expect(loss).to_have_attribute("data-smoothing", "0.9")
    average = weights = 0.0
    for value in LOSSES:
        average, weights = average * 0.9 + value * 0.1, weights * 0.9 + 0.1
    expect(loss.locator("figcaption")).to_contain_text(f"(smoothed {average / weights:.4g}), least ")
    page.reload()
    expect(page.get_by_label("Log scale")).to_be_checked()
    for name in ("loss", "accuracy"):
        expect(chart(page, name)).to_have_attribute("data-scale", "log")
        expect(chart(page, name)).to_have_attribute("data-smoothing", "0.9")
    page.get_by_label("By time").check()
    expect(loss.locator("figcaption")).to_contain_text("by time (UTC)")


def test_charts_of_any_size_have_an_axis_and_figures_of_all_values(
    page: Page, trial: Trial, logging_node: Kubelet
) -> None:
    values = {step: (1, 50, 2, 3)[step % 4] for step in range(2500)} | {777: 1000, 778: -7}
    master = trial.await_pod("master-0")["metadata"]["name"]
    logging_node.logs[master] = "".join(
        f"step={step} loss={value} accuracy={'nan' if step == 2499 else '1e300' if step % 2 else '-1e300'}\n"
        for step, value in values.items()
    )
    page.add_init_script(
        "window.texts = []; const fill = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {"
        " window.texts.push(text); return fill.call(this, text, ...rest); };"
    )
    page.reload()
    expect(chart(page, "loss").locator("figcaption")).to_contain_text("last 3, least -7, greatest 1000")
    expect(chart(page, "accuracy").locator("figcaption")).to_contain_text("last nan, least -1e+300, greatest 1e+300")
    eventually(lambda: {"-1e300", "1e300"} <= set(page.evaluate("texts")))
    logging_node.logs[master] = "".join(f"step={step} loss=inf accuracy={step}e-7\n" for step in range(1, 11))
    page.reload()
    expect(chart(page, "loss").locator("figcaption")).to_contain_text("last inf, and no finite value to draw")
    expect(chart(page, "loss").locator(".plot")).to_be_hidden()
    eventually(lambda: "4e-7" in page.evaluate("texts"))


def test_values_at_the_cursor_are_shown_in_all_charts(page: Page) -> None:
    plot = chart(page, "loss").locator(".plot")
    plot.hover(position={"x": 300, "y": 80})
    readouts = [chart(page, name).locator(".readout") for name in ("loss", "accuracy")]
    for readout in readouts:
        expect(readout).to_contain_text(re.compile(r"step \d+ \d"))
    steps = {int(readout.inner_text().split()[1]) for readout in readouts}
    assert len(steps) == 1
    page.mouse.move(5, 5)
    for readout in readouts:
        expect(readout).to_have_text("")
    plot.focus()
    page.keyboard.press("End")
    for readout in readouts:
        expect(readout).to_contain_text(f"step {STEPS} ")
    page.keyboard.press("ArrowLeft")
    expect(readouts[1]).to_contain_text(f"step {STEPS - 1} {(STEPS - 1) / STEPS:.3f}")
    page.keyboard.press("Escape")
    expect(readouts[1]).to_have_text("")


def test_charts_are_drawn_again_in_the_colours_of_another_scheme(page: Page) -> None:
    expect(chart(page, "loss").locator("canvas")).to_be_visible()
    drawing = "document.querySelector('figure canvas').toDataURL()"
    light = page.evaluate(drawing)
    page.emulate_media(color_scheme="dark")
    eventually(lambda: page.evaluate(drawing) != light)


def test_the_log_of_each_container_can_be_chosen(page: Page) -> None:
    log, containers = page.get_by_role("log"), page.get_by_label("Container", exact=True)
    groups = containers.locator("optgroup")
    assert groups.evaluate_all("all => all.map((each) => [each.label, each.textContent])") == [
        ["Init containers", "fetch-data"],
        ["Sidecars", "reporter"],
    ]
    containers.select_option("fetch-data")
    expect(log).to_contain_text("master-0 has fetched the data")
    expect(log).not_to_contain_text("step=1 ")
    page.get_by_label("Replica", exact=True).select_option("worker-0")
    expect(log).to_contain_text("worker-0 has fetched the data")
    containers.select_option("reporter")
    expect(log).to_contain_text("worker-0 has reported")
    containers.select_option("training")
    expect(log).to_contain_text("the worker's line")


def test_the_log_of_the_previous_run_is_shown_or_said_not_to_exist(
    page: Page, trial: Trial, logging_node: Kubelet
) -> None:
    log = page.get_by_role("log")
    page.get_by_label("Previous run").check()
    expect(log).to_contain_text("master-0 has no previous run")
    pod = trial.await_pod("master-0")
    statuses = pod["status"]["containerStatuses"]
    ended = {"terminated": {"exitCode": 1, "startedAt": TIME[:19] + "Z", "finishedAt": TIME[:19] + "Z"}}
    for status in statuses:
        status |= {"restartCount": 1, "lastState": ended}
    path = f"/api/v1/namespaces/{trial.namespace}/pods/{pod['metadata']['name']}/status"
    trial.jobs.api.patch(path, {"status": {"containerStatuses": statuses}})
    expect(page.get_by_role("row", name="master-0").locator(".mark.restart")).to_have_count(1)
    page.get_by_label("Previous run").uncheck()
    expect(log).to_contain_text(f"step={STEPS} ")
    page.get_by_label("Previous run").check()
    expect(log).to_contain_text("master-0 failed before")


def test_a_log_is_searched_from_match_to_match(page: Page) -> None:
    log, hits = page.get_by_role("log"), page.locator("#log-hits")
    page.get_by_label("Search").fill("STEP=11")
    expect(hits).to_have_text("11 lines")  # 11, and 110 to 119
    expect(log.get_by_text("step=1 loss")).to_have_count(1)
    page.get_by_label("Search").press("Enter")
    expect(hits).to_have_text("1 of 11")
    expect(log.locator(".current")).to_contain_text("step=11 ")
    expect(log.locator(".current")).to_be_in_viewport()
    expect(page.get_by_label("Follow")).not_to_be_checked()
    page.get_by_role("button", name="Next match").click()
    expect(log.locator(".current")).to_contain_text("step=110 ")
    for _ in range(2):
        page.get_by_role("button", name="Previous match").click()
    expect(hits).to_have_text("11 of 11")
    expect(log.locator(".current")).to_contain_text("step=119 ")
    expect(log.get_by_text("step=12 loss")).to_be_visible()
    page.get_by_label("Only matches").check()
    expect(log.get_by_text("step=12 loss")).to_be_hidden()
    page.get_by_label("Search").fill("nothing has this")
    expect(hits).to_have_text("no match")
    expect(page.get_by_role("button", name="Next match")).to_be_disabled()
    page.get_by_label("Search").fill("")
    expect(log.get_by_text("step=12 loss")).to_be_visible()


def test_times_and_line_breaks_of_a_log_are_chosen_and_kept(page: Page, trial: Trial) -> None:
    line = page.get_by_role("log").locator("div").first
    before = "each => getComputedStyle(each, '::before').content"
    assert line.evaluate(before) == "none"
    page.get_by_label("Times").check()
    eventually(lambda: "2026-01-02 03:04:05" in line.evaluate(before))
    # Times are no part of the lines: a search does not find them.
    page.get_by_label("Search").fill("2026-01-02")
    expect(page.locator("#log-hits")).to_have_text("no match")
    space = "each => getComputedStyle(each).whiteSpace"
    assert line.evaluate(space) == "pre-wrap"
    page.get_by_label("Wrap").uncheck()
    eventually(lambda: line.evaluate(space) == "pre")
    # A background, such as that of a match, is as long as the line.
    page.set_viewport_size({"width": PHONE, "height": HEIGHT})
    page.get_by_role("tab", name="Log").click()
    assert line.evaluate("each => (each.textContent += 'x'.repeat(300), each.scrollWidth <= each.clientWidth)")
    page.set_viewport_size({"width": DESK, "height": HEIGHT})
    open_page(page, trial)
    expect(page.get_by_label("Times")).to_be_checked()
    expect(page.get_by_label("Wrap")).not_to_be_checked()


def test_a_log_is_downloaded_whole(page: Page, trial: Trial) -> None:
    def downloaded() -> tuple[str, str]:
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
        return download.value.suggested_filename, Path(download.value.path()).read_text()

    assert downloaded() == (f"{trial.name}-master-0.log", LOG)
    page.get_by_label("Times").check()
    assert downloaded()[1].splitlines()[0] == f"{TIME} {LOG.splitlines()[0]}"
    page.get_by_label("Times").uncheck()
    page.get_by_label("Container", exact=True).select_option("reporter")
    assert downloaded() == (f"{trial.name}-master-0-reporter.log", "master-0 has reported\n")
    origin = origin_of(page.url)
    address = f"{origin}/logs/{trial.namespace}/tfjob/{trial.name}/file"
    answer = page.request.get(address, params={"replica": "master-0"})
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == f'attachment; filename="{trial.name}-master-0.log"'
    refused = page.request.get(address, params={"replica": "nobody-7"})
    assert refused.status == 400
    assert "has no replica nobody-7" in refused.text()


def write_event(trial: Trial, reason: str, message: str, *, kind: str = "Normal", count: int = 1, ago: int = 0) -> None:
    job = trial.jobs.get(trial.name)
    meta, moment = job["metadata"], (datetime.now(UTC) - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": trial.name, "namespace": trial.namespace}
    event = {
        "metadata": {"generateName": "told-"},
        "involvedObject": {**about, "uid": meta["uid"]},
        "reason": reason,
        "message": message,
        "type": kind,
        "count": count,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "source": {"component": "test"},
    }
    trial.jobs.api.create(f"/api/v1/namespaces/{trial.namespace}/events", event)
    # Pages are written again when the job changes.
    told = {"metadata": {"annotations": {"example.com/told": message}}}
    trial.jobs.api.patch(trial.jobs.resource.path(trial.namespace, trial.name), told)


def test_lanes_have_textures_and_marks_with_a_legend(page: Page, trial: Trial) -> None:
    lane = page.get_by_role("row", name="master-0").locator("svg.gantt")
    expect(lane.locator("rect.running")).to_have_count(1)
    expect(lane.locator("rect.waiting + rect.texture").first).to_have_attribute("fill", "url(#t-waiting)")
    marks = {
        "checkpoint": "CheckpointSaved",
        "resize": "Resized",
        "preemption": "Preempted",
        "stall": "Stalled",
    }
    for reason in marks.values():
        write_event(trial, reason, f"the message of {reason}")
    open_page(page, trial)
    of_job = page.locator("svg.axis")
    for kind, reason in marks.items():
        expect(of_job.locator(f".mark.{kind} title")).to_contain_text(f"{kind}: the message of {reason}")
        expect(page.locator(".legend").get_by_text(kind, exact=True)).to_be_visible()
    assert of_job.locator("text").count() > 0


def test_events_are_folded_and_their_repetitions_counted(page: Page, trial: Trial) -> None:
    for number in (1, 2):
        write_event(
            trial, "Restarted", f"worker-0 failed (restart {number} of 9)", kind="Warning", count=number, ago=5 - number
        )
    open_page(page, trial)
    summary = page.locator("summary", has_text="Events")
    expect(summary).to_contain_text("3 warnings, the newest")
    expect(summary).to_contain_text("Restarted: worker-0 failed (restart 2 of 9)")
    events = page.get_by_role("region", name="Events")
    expect(events).to_be_hidden()
    summary.click()
    told = events.get_by_role("row", name="Restarted")
    expect(told).to_have_count(1)
    expect(told).to_contain_text(re.compile(r"3 times, last \d+s ago"))


def test_the_manifest_is_copied(guest: Visitor, page: Page) -> None:
    guest.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("summary", has_text="Manifest").click()
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    assert "kind: TFJob" in page.evaluate("navigator.clipboard.readText()")


def test_a_replica_in_the_table_shows_its_log(page: Page, trial: Trial) -> None:
    button = page.get_by_role("button", name="worker-0")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("log")).to_contain_text("the worker's line")
    expect(page.get_by_label("Replica", exact=True)).to_have_value("worker-0")
    expect(button).to_have_attribute("aria-pressed", "true")
    # It stays chosen when the job changes.
    trial.end("worker-0")
    expect(page.get_by_role("row", name="worker-0")).to_contain_text("Succeeded")
    expect(button).to_have_attribute("aria-pressed", "true")


def test_the_message_of_a_replica_has_two_lines_and_is_whole_in_its_title(page: Page, trial: Trial) -> None:
    pods = f"/api/v1/namespaces/{trial.namespace}/pods"
    pod, message = trial.await_pod("worker-0")["metadata"]["name"], "0/2 nodes are available: " + "too few GPUs, " * 20
    waiting = {"waiting": {"reason": "CreateContainerError", "message": message}}
    status = {"name": "tensorflow", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": waiting}
    trial.jobs.api.patch(f"{pods}/{pod}/status", {"status": {"phase": "Pending", "containerStatuses": [status]}})
    shown = page.get_by_role("row", name="worker-0").locator("td.message span")
    expect(shown).to_have_attribute("title", re.compile("(too few GPUs, ){10}"))
    height, line = shown.evaluate(
        "each => [each.getBoundingClientRect().height, parseFloat(getComputedStyle(each).lineHeight)]"
    )
    assert 1.5 * line < height < 2.5 * line


def test_a_phone_has_tabs_that_keys_select(page: Page) -> None:
    expect(page.get_by_role("tablist")).to_be_hidden()
    page.set_viewport_size({"width": PHONE, "height": HEIGHT})
    panels = {name: page.get_by_role("tabpanel", name=name) for name in ("Overview", "Charts", "Log")}
    shown = {"Overview": "Replicas", "Charts": "loss", "Log": f"step={STEPS} "}
    page.get_by_role("tab", name="Overview").focus()
    for key, name in (("ArrowRight", "Charts"), ("ArrowRight", "Log"), ("ArrowRight", "Overview"), ("End", "Log")):
        page.keyboard.press(key)
        expect(page.get_by_role("tab", name=name)).to_be_focused()
        expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
        expect(panels[name]).to_contain_text(shown[name])
        for other in set(panels) - {name}:
            expect(panels[other]).to_have_count(0)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE
    # A replica leads to its log.
    page.get_by_role("tab", name="Overview").click()
    page.get_by_role("button", name="worker-0").click()
    expect(panels["Log"]).to_contain_text("the worker's line")
    page.set_viewport_size({"width": DESK, "height": HEIGHT})
    expect(page.get_by_role("tablist")).to_be_hidden()
    for part in ("Replicas", "Metrics", "Log"):
        expect(page.get_by_role("heading", name=part, exact=True)).to_be_visible()


def test_tabs_of_a_phone_hide_nothing_that_has_the_focus(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 600})
    page.get_by_role("tab", name="Overview").click()
    expect(page.locator("#jobhead")).to_be_visible()
    page.locator("#details details").last.locator("summary").click()
    page.get_by_role("button", name="Copy").focus()
    page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
    page.keyboard.press("Shift+Tab")
    hidden = """() => {
        const at = document.activeElement, tabs = document.querySelector(".jobtabs");
        return tabs.contains(at) ? null : at.getBoundingClientRect().top < tabs.getBoundingClientRect().bottom - 1;
    }"""
    seen: list[bool] = []
    while (is_hidden := page.evaluate(hidden)) is not None and len(seen) < 30:
        seen.append(is_hidden)
        page.keyboard.press("Shift+Tab")
    assert len(seen) > 4
    assert not any(seen), seen


def test_a_job_that_is_deleted_while_its_page_is_open_has_no_buttons_and_is_not_asked_again(
    page: Page, trial: Trial
) -> None:
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(json=[])

    for pattern in ("**/metrics/**", "**/use/**"):
        page.route(pattern, answer)
    page.clock.install()
    open_page(page, trial)
    expect(page.locator(".jobhead .actions").get_by_role("button")).to_have_text(["Suspend", "Scale", "Delete"])
    trial.delete()
    head = page.locator("#jobhead")
    expect(head.get_by_role("status")).to_contain_text(f"{trial.namespace}/{trial.name} was deleted. Jobs")
    expect(head.locator(".pill")).to_have_text("Deleted")
    expect(head.get_by_role("link", name="Jobs")).to_have_attribute("href", f"/jobs?namespace={trial.namespace}")
    expect(head.get_by_role("button")).to_have_count(0)
    expect(page.get_by_text("This is the last state that was read")).to_be_visible()
    asked.clear()
    page.clock.run_for(40_000)
    assert asked == []


def test_who_may_not_read_pods_sees_the_rest_and_which_right_is_missing(
    browser: Browser, control_plane: Cluster, trial: Trial, tmp_path: Path
) -> None:
    trial.submit(master(), workers(1))
    trial.await_phase("Running")
    read = {"verbs": ["get", "list", "watch"]}
    rules = [{"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], **read}]
    token = new_service_account(control_plane.api, trial.namespace, "half-blind", rules)
    kubeconfig = write_kubeconfig(control_plane, token, tmp_path / "kubeconfig")
    try:
        with dashboard(kubeconfig, "-n", trial.namespace) as address, visitor(browser) as guest:
            guest.page.goto(address)
            guest.page.goto(f"{origin_of(address)}/jobs/{trial.namespace}/tfjob/{trial.name}")
            expect(guest.page.get_by_role("heading", level=1)).to_contain_text(trial.name)
            expect(guest.page.locator("#view")).to_contain_text("worker 1/1")
            problems = guest.page.locator("#view .notice")
            expect(problems.filter(has_text='cannot list resource "pods"')).to_contain_text("role `view`")
            expect(guest.page.get_by_text("There is no log yet")).to_be_visible()
            expect(guest.page.get_by_text("This may be out of date")).to_have_count(0)
            assert faults(guest.errors) == []
    finally:
        delete_service_account(control_plane.api, trial.namespace, "half-blind")
