"""What the replicas of a job use, on its page in a real browser: from a real metrics-server and a real Prometheus.

The kubelet that metrics-server asks, and the exporter whose samples Prometheus has, are played.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from helpers.browser import visitor
from helpers.cluster import Cluster, set_pod_running
from helpers.dashboards import account, dashboard, faults, log_in, origin_of, shared_dashboard
from helpers.dcgm import Gpu, history
from helpers.kubectl import Kubectl
from helpers.logkubelet import Kubelet
from helpers.manifests import container, master, pod_template
from helpers.metricsserver import resource_metrics, running_metrics_server
from helpers.playground import Trial
from helpers.plugin import Run
from helpers.poll import eventually
from helpers.prometheusserver import Prometheus, prometheus_with
from helpers.rights import RBAC
from integration.test_dashboard_accessibility import expect_accessible

pytestmark = pytest.mark.cluster

MEMORY = 300 * 2**20
POLL_SECONDS = 15
PERIOD, WHOLE, LATER = 30, 45 * 60, 20 * 60


@dataclass(frozen=True, slots=True)
class Running:
    """A job with one pod, which holds two GPUs."""

    trial: Trial
    pod: str

    def open(self, page: Page, address: str) -> None:
        page.goto(address)
        page.goto(f"{origin_of(address)}/jobs/{self.trial.namespace}/tfjob/{self.trial.name}")
        expect(page.get_by_label("Diagnosis")).to_be_visible()

    def change(self, page: Page) -> None:
        """Changes the job, and waits until its page shows that."""
        path = self.trial.jobs.resource.path(self.trial.namespace, self.trial.name)
        self.trial.jobs.api.patch(path, {"metadata": {"labels": {"changed": "yes"}}})
        expect(page.locator("pre.manifest")).to_contain_text("changed:")

    def samples(self, utilization: float) -> str:
        now = time.time()
        gpus = [
            Gpu(self.trial.namespace, self.pod, utilization, number=0),
            Gpu(self.trial.namespace, self.pod, utilization, number=1),
        ]
        return history(gpus, [now + second for second in range(-WHOLE, LATER, PERIOD)])


@pytest.fixture
def running(trial: Trial, logging_node: Kubelet) -> Running:
    amounts = {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "2"}
    resources = {"requests": amounts, "limits": amounts}
    trial.submit(master(template=pod_template(container(resources=resources), nodeName=logging_node.name)))
    pod = trial.await_pod("master-0")["metadata"]["name"]
    set_pod_running(trial.jobs.api, trial.namespace, pod)
    logging_node.resource_metrics = resource_metrics(trial.namespace, pod, "tensorflow", 0.5, MEMORY)
    return Running(trial, pod)


@pytest.fixture
def metrics_server(control_plane: Cluster, tmp_path: Path) -> Iterator[None]:
    with running_metrics_server(control_plane, tmp_path):
        yield


@pytest.fixture
def prometheus(request: pytest.FixtureRequest, running: Running, tmp_path: Path) -> Iterator[Prometheus]:
    """Has the GPUs of the job, which were used so much all the time, in percent."""
    with prometheus_with(running.samples(request.param), tmp_path) as server:
        yield server


def cells(page: Page) -> dict[str, str]:
    row = page.locator("#use tbody tr")
    expect(row).to_have_count(1)
    return {cell.get_attribute("data-label") or "": cell.inner_text().strip() for cell in row.locator("td").all()}


@pytest.mark.long
@pytest.mark.parametrize("prometheus", [40.0], indirect=True)
def test_the_page_of_a_job_shows_what_its_replicas_use(
    browser: Browser,
    control_plane: Cluster,
    running: Running,
    metrics_server: None,
    prometheus: Prometheus,
    plugin: Run,
) -> None:
    with (
        dashboard(
            control_plane.kubeconfig, "-n", running.trial.namespace, "--prometheus-url", prometheus.url
        ) as address,
        visitor(browser) as guest,
    ):
        running.open(guest.page, address)
        use = guest.page.locator("#use")
        expect(use.get_by_role("columnheader")).to_have_text(["Replica", "CPU", "Memory", "GPU", "GPU memory"])
        shown = cells(guest.page)
        assert re.fullmatch(r"0\.(4\d|5|5\d) of 2", shown["CPU"])
        assert shown["Memory"] == "300Mi of 1.0Gi"
        assert shown["GPU"] == "40 % of 2 GPUs"
        assert shown["GPU memory"] == "2.0Gi of 158.2Gi"
        expect(use.locator("svg.usage rect").nth(2)).to_have_attribute("width", "40.0")
        expect(use.get_by_text("were not used")).to_have_count(0)
        code, printed, _ = plugin("top")
        assert code == 0
        assert re.search(r"CPU USED +MEMORY USED", printed)
        assert re.search(rf"tfjob/{running.trial.name} .* (4|5)\d\dm +300Mi +master-0", printed)
        # It is read again, and stays while the rest of the page changes.
        guest.page.evaluate("document.querySelector('#use tbody').isTheSame = true")
        with guest.page.expect_response(re.compile("/use/"), timeout=60_000):
            running.change(guest.page)
        assert guest.page.evaluate("document.querySelector('#use tbody').isTheSame")
        assert faults(guest.errors) == []


@pytest.mark.parametrize("prometheus", [0.0], indirect=True)
def test_a_job_whose_gpus_are_not_used_for_half_an_hour_is_said(
    browser: Browser, control_plane: Cluster, running: Running, prometheus: Prometheus
) -> None:
    with (
        dashboard(
            control_plane.kubeconfig, "-n", running.trial.namespace, "--prometheus-url", prometheus.url
        ) as address,
        visitor(browser) as guest,
    ):
        running.open(guest.page, address)
        expect(guest.page.locator("#use")).to_contain_text("Its 2 GPUs were not used in the last 30 minutes.")
        eventually(lambda: cells(guest.page) == {"GPU": "0 % of 2 GPUs", "GPU memory": "2.0Gi of 158.2Gi"}, timeout=60)
        expect_accessible(guest.page)
        guest.page.goto(f"{origin_of(address)}/jobs?namespace={running.trial.namespace}")
        link = guest.page.get_by_role("link", name=running.trial.name, exact=True)
        expect(guest.page.locator("tr", has=link)).to_contain_text("GPUs unused for 30 minutes")
        assert faults(guest.errors) == []


def test_without_both_nothing_is_shown_and_nothing_fails(
    browser: Browser, control_plane: Cluster, running: Running
) -> None:
    with dashboard(control_plane.kubeconfig, "-n", running.trial.namespace) as address, visitor(browser) as guest:
        answered: list[int] = []
        guest.page.on("response", lambda reply: answered.append(reply.status) if "/use/" in reply.url else None)
        opened = time.monotonic()
        running.open(guest.page, address)
        expect(guest.page.locator("#use")).to_be_attached()
        expect(guest.page.locator("#use section")).to_have_count(0)
        # The part asks when it appears and then every 15 seconds, not when the rest of the page is exchanged.
        eventually(lambda: answered)
        running.change(guest.page)
        assert set(answered) == {200}
        assert len(answered) <= 1 + (time.monotonic() - opened) / POLL_SECONDS
        assert guest.errors == []


def test_a_prometheus_that_is_away_is_said_without_its_address(
    browser: Browser, control_plane: Cluster, running: Running
) -> None:
    away = "http://127.0.0.1:9/secret-path"
    with (
        dashboard(control_plane.kubeconfig, "-n", running.trial.namespace, "--prometheus-url", away) as address,
        visitor(browser) as guest,
    ):
        running.open(guest.page, address)
        expect(guest.page.locator("#use")).to_contain_text(
            "The use of GPUs is not shown. Prometheus: it cannot be reached."
        )
        assert "secret-path" not in guest.page.content()
        assert faults(guest.errors) == []


@pytest.mark.parametrize("prometheus", [0.0], indirect=True)
def test_a_shared_dashboard_shows_the_gpus_of_the_pods_that_a_person_may_read(
    browser: Browser,
    control_plane: Cluster,
    running: Running,
    prometheus: Prometheus,
    kubectl: Kubectl,
    tmp_path: Path,
) -> None:
    kubectl.must("apply", "--server-side", "-f", str(RBAC / "user-roles.yaml"))
    viewer = account(kubectl, control_plane.api, "viewer", running.trial.namespace, "view")
    stranger = account(kubectl, control_plane.api, "stranger")
    (folder := tmp_path / "dashboard").mkdir()
    job = f"{running.trial.namespace}/tfjob/{running.trial.name}"
    with shared_dashboard(control_plane, folder, f"--prometheus-url={prometheus.url}") as shared:
        with visitor(browser) as guest:
            log_in(guest.page, shared.address, viewer)

            def is_shown() -> bool:  # Kubernetes adds the shipped rights to its role a moment later
                guest.page.goto(f"{shared.address}/jobs/{job}")
                return guest.page.locator("#use").count() > 0

            eventually(is_shown, timeout=60)
            expect(guest.page.locator("#use")).to_contain_text("Its 2 GPUs were not used in the last 30 minutes.")
        with visitor(browser) as guest:
            log_in(guest.page, shared.address, stranger)
            guest.page.wait_for_url(re.compile("/jobs"))
            answer = guest.page.goto(f"{shared.address}/use/{job}")
            assert answer is not None
            assert answer.status == 403
            expect(guest.page.locator("#use, .use")).to_have_count(0)
