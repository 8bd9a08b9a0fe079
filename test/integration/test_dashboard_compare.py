"""The page that compares jobs: one metric of all in a chart and a table, and their settings with the differences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Locator, Page, expect

from helpers.browser import Visitor
from helpers.cluster import set_pod_running
from helpers.dashboards import expect_heading, origin_of
from helpers.logkubelet import Kubelet
from helpers.manifests import container, master, pod_template
from helpers.playground import Playground, Trial
from integration.test_dashboard import address, guest
from integration.test_dashboard_accessibility import expect_accessible, expect_tables, press, tab_to

pytestmark = pytest.mark.cluster

__all__ = ["address", "guest"]


def log_of(name: str, factor: float) -> str:
    return "".join(f"step={step} {name}={factor / step:.3f} accuracy=0.{step}\n" for step in range(1, 5))


@pytest.fixture
def pair(playground: Playground, logging_node: Kubelet) -> Iterator[tuple[Trial, Trial]]:
    """Two running jobs that print metrics an hour after their start; their images and a variable differ."""
    trials = playground.new_trial(), playground.new_trial()
    logging_node.time = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    for number, trial in enumerate(trials, 1):
        env = [{"name": "RATE", "value": f"0.{number}"}, {"name": "EQUAL", "value": "same"}]
        program = {**container(), "image": f"localhost/model:{number}", "env": env}
        trial.submit(master(template=pod_template(program, nodeName=logging_node.name)), metrics={"enabled": True})
        pod = trial.await_pod("master-0")["metadata"]["name"]
        logging_node.logs[pod] = log_of("loss", float(number))
        set_pod_running(trial.jobs.api, trial.namespace, pod)
        trial.await_phase("Running")
    yield trials
    for trial in trials:
        trial.clear()


def reference(trial: Trial, kind: str = "tfjob") -> str:
    return f"{kind}/{trial.namespace}/{trial.name}"


def compare(page: Page, *references: str, **parameters: str) -> None:
    query = urlencode([*(("job", each) for each in references), *parameters.items()])
    page.goto(f"{origin_of(page.url)}/compare?{query}")
    expect_heading(page, "Compare jobs")


def value_of(page: Page, trial: Trial, column: str) -> Locator:
    row = page.locator("#comparison-values tr", has_text=trial.name)
    return row.locator(f'[data-label="{column}"]')


def test_a_metric_of_jobs_is_compared_in_a_chart_and_a_table(guest: Visitor, pair: tuple[Trial, Trial]) -> None:
    page, (one, two) = guest.page, pair
    compare(page, reference(one), reference(two))
    expect(page.locator("#comparison-chart canvas")).to_be_visible()
    expect(value_of(page, one, "Last")).to_have_text("0.25")
    expect(value_of(page, two, "Last")).to_have_text("0.5")
    expect(value_of(page, two, "Greatest")).to_have_text("2 at step 1")
    expect(value_of(page, two, "Least")).to_have_text("0.5 at step 4")
    # One cursor shows the values of all.
    chart = page.locator("#comparison-chart .plot")
    tab_to(page, chart)
    page.keyboard.press("Home")
    readout = page.locator("#comparison-chart .readout")
    expect(readout).to_contain_text(f"{one.name} 1")
    expect(readout).to_contain_text(f"{two.name} 2")
    # By time the positions count from the start of each job, so that jobs of different days can be compared.
    page.get_by_label("By time since the start").check()
    expect(page.locator("#comparison-chart figcaption")).to_contain_text("loss by time since the start")
    expect(value_of(page, two, "Greatest")).to_have_text(re.compile("2 at (59m|1h)"))
    page.get_by_label("By time since the start").uncheck()
    # The choice of a metric is part of the address.
    page.get_by_label("Metric", exact=True).select_option("accuracy")
    expect(value_of(page, one, "Last")).to_have_text("0.4")
    expect(page).to_have_url(re.compile("metric=accuracy"))
    page.reload()
    expect(value_of(page, one, "Last")).to_have_text("0.4")
    page.get_by_label("Log scale").check()
    expect(page.locator("#comparison-chart")).to_have_attribute("data-scale", "log")
    page.get_by_label("Smoothing").fill("0.5")
    expect(page.locator("#comparison-chart")).to_have_attribute("data-smoothing", "0.5")


def test_settings_that_differ_are_marked_and_equal_ones_are_shown_on_demand(
    guest: Visitor, pair: tuple[Trial, Trial]
) -> None:
    page, (one, two) = guest.page, pair
    compare(page, reference(one), reference(two))
    table = page.get_by_role("region", name="Settings of the jobs")
    image = table.locator("tr", has=page.get_by_role("rowheader", name="MASTER / tensorflow / image", exact=True))
    expect(image.locator("td").nth(0)).to_have_text("localhost/model:1")
    expect(image.locator("td").nth(1)).to_have_text("≠differs: localhost/model:2")
    rate = table.locator("tr", has=page.get_by_role("rowheader", name="MASTER / tensorflow / env / RATE", exact=True))
    expect(rate).to_contain_text("0.2")
    equal = table.get_by_role("rowheader", name="MASTER / tensorflow / env / EQUAL", exact=True)
    expect(equal).to_have_count(0)
    page.evaluate("window.isTheSamePage = true")
    press(page, page.get_by_role("link", name="Show all settings"))
    expect(equal).to_be_visible()
    expect(page).to_have_url(re.compile("settings=all"))
    assert page.evaluate("window.isTheSamePage")
    press(page, page.get_by_role("link", name="Show only differences"))
    expect(equal).to_have_count(0)


def test_jobs_are_added_and_removed_by_keys(guest: Visitor, pair: tuple[Trial, Trial]) -> None:
    page, (one, two) = guest.page, pair
    compare(page)
    expect(page.locator("main .notice")).to_contain_text("Choose two to eight jobs")
    for trial in pair:
        tab_to(page, page.get_by_label("Add a job"))
        page.keyboard.type(reference(trial))
        page.keyboard.press("Enter")
        expect(page.get_by_role("listitem").filter(has_text=trial.name)).to_be_visible()
    expect(page.locator("main .notice")).to_have_count(0)
    expect(page.get_by_role("region", name="Settings of the jobs")).to_be_visible()
    press(page, page.get_by_role("link", name=f"Remove {one.name}"))
    expect(page.get_by_role("listitem").filter(has_text=one.name)).to_have_count(0)
    expect(page.locator("main .notice")).to_contain_text("Choose two to eight jobs")
    # The jobs of the namespace are offered, apart from those that are there already.
    offered = page.locator("#offered option")
    expect(page.locator(f'#offered option[value="{reference(one)}"]')).to_have_count(1)
    expect(page.locator(f'#offered option[value="{reference(two)}"]')).to_have_count(0)
    assert offered.count() > 0


def test_a_job_that_is_gone_or_named_wrongly_has_one_line_and_others_are_shown(
    guest: Visitor, pair: tuple[Trial, Trial]
) -> None:
    page, (one, two) = guest.page, pair
    gone = f"tfjob/{one.namespace}/nobody"
    compare(page, gone, reference(one), "nonsense", "podjob/a/b", reference(two))
    items = page.get_by_role("listitem")
    expect(items.filter(has_text=gone)).to_contain_text("not found")
    expect(items.filter(has_text="nonsense")).to_contain_text("use KIND/NAMESPACE/NAME")
    expect(items.filter(has_text="podjob/a/b")).to_contain_text("unknown kind 'podjob'")
    expect(value_of(page, one, "Last")).to_have_text("0.25")
    expect(value_of(page, two, "Last")).to_have_text("0.5")
    many = [f"tfjob/{one.namespace}/nobody-{index}" for index in range(9)]
    compare(page, *many)
    expect(items).to_have_count(8)
    expect(page.locator("main .notice").first).to_contain_text("At most 8 jobs are compared: the last 1 are left out")
    expect(page.get_by_label("Add a job")).to_have_count(0)


def test_the_comparison_is_accessible_on_a_phone_and_a_desk(guest: Visitor, pair: tuple[Trial, Trial]) -> None:
    page, (one, two) = guest.page, pair
    compare(page, reference(one), reference(two), f"tfjob/{one.namespace}/{'a-very-long-name-' * 6}x", settings="all")
    expect(page.locator("#comparison-values tr")).to_have_count(2)
    expect_accessible(page)
    expect_tables(page, one.name, two.name, "MASTER / tensorflow / image")
