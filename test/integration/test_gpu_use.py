"""The queries about GPUs on a real Prometheus, with metrics of the DCGM exporter in all forms in which it has them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.dcgm import Gpu, exposition, history
from helpers.httpserver import Answer, HttpServer
from helpers.poll import eventually
from helpers.prometheusserver import prometheus_with, running_prometheus
from tfjob_controller.client.liveuse.gpus import GpuUse, gpu_use, half_hour_peaks
from tfjob_controller.client.liveuse.prometheus import Prometheus

MIB = 2**20
# So often the exporter measures, and a Prometheus scrapes it.
PERIOD = 30
MINUTE = 60
# The tests may take a while after the samples are made.
LATER = 20 * MINUTE
IDLE = Gpu("team", "idle")


def span(begin: float, end: float = LATER) -> list[float]:
    now = time.time()
    return [now + second for second in range(round(begin), round(end), PERIOD)]


WHOLE = -45 * MINUTE
BUSY_ONCE = -10 * MINUTE


@pytest.fixture(scope="module", params=[False, True], ids=["renamed", "honored"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has renamed the exporter's labels, or not."""

    def past(*gpus: Gpu, times: list[float]) -> str:
        return history(gpus, times, honors_labels=request.param)

    mig = replace(IDLE, mig=True)
    parts = [
        past(IDLE, replace(IDLE, number=1), times=span(WHOLE)),
        past(replace(IDLE, pod="half"), replace(IDLE, pod="half", number=1, utilization=80), times=span(WHOLE)),
        past(replace(mig, pod="partition"), times=span(WHOLE)),
        past(replace(mig, pod="used-partition", utilization=30), times=span(WHOLE)),
        past(replace(IDLE, pod="dot.ted"), times=span(WHOLE)),
        past(replace(IDLE, pod="dotxted", utilization=9), times=span(WHOLE)),
        past(replace(IDLE, namespace="other", utilization=50), times=span(WHOLE)),
        past(replace(IDLE, pod="young"), times=span(-20 * MINUTE)),
        past(replace(IDLE, pod="gone"), times=span(WHOLE, -8 * MINUTE)),
        past(replace(IDLE, pod="interrupted"), times=[*span(WHOLE, -25 * MINUTE), *span(-12 * MINUTE)]),
        past(replace(IDLE, pod="was-busy"), times=span(WHOLE, BUSY_ONCE)),
        past(replace(IDLE, pod="was-busy", utilization=1), times=span(BUSY_ONCE, BUSY_ONCE + PERIOD)),
        past(replace(IDLE, pod="was-busy"), times=span(BUSY_ONCE + PERIOD)),
        # The exporter was restarted, and has another address.
        past(replace(IDLE, pod="moved"), times=span(WHOLE, -15 * MINUTE)),
        past(replace(IDLE, pod="moved"), times=span(-15 * MINUTE)).replace("10.0.0.7:", "10.0.0.8:"),
    ]
    with prometheus_with(merged(parts), tmp_path_factory.mktemp("prometheus")) as server:
        yield Prometheus(server.url)


def merged(texts: list[str]) -> str:
    """One text in which each family is in one piece, and each series in the order of time."""
    lines = [line for text in texts for line in text.splitlines() if line != "# EOF"]
    families = sorted({line for line in lines if line.startswith("# TYPE")})
    samples = sorted((line for line in lines if not line.startswith("#")), key=lambda line: float(line.split()[-1]))
    pieces = [[family, *(line for line in samples if line.startswith(family.split()[2] + "{"))] for family in families]
    return "\n".join([line for piece in pieces for line in piece] + ["# EOF", ""])


def test_only_pods_without_any_use_through_the_whole_half_hour_are_idle(stored: Prometheus) -> None:
    peaks = half_hour_peaks(stored, "team")
    assert {pod: peak for (_, pod), peak in peaks.items()} == {
        "idle": 0.0,
        "half": 80.0,
        "partition": 0.0,
        "used-partition": 30.0,
        "dot.ted": 0.0,
        "dotxted": 9.0,
        "was-busy": 1.0,
        "moved": 0.0,
    }


def test_all_namespaces_are_told_apart(stored: Prometheus) -> None:
    peaks = half_hour_peaks(stored, "")
    assert {namespace for namespace, _ in peaks} == {"team", "other"}
    assert (peaks["team", "idle"], peaks["other", "idle"]) == (0.0, 50.0)


def test_the_figures_of_a_job_are_those_of_its_pods_alone(stored: Prometheus) -> None:
    pods = ["idle", "half", "used-partition", "dot.ted", "young", "moved", "unknown"]
    memory, total = 1024 * MIB, 81_024 * MIB
    expected: Mapping[str, GpuUse] = {
        "idle": GpuUse(2, 0.0, 2 * memory, 2 * total, 0.0),
        "half": GpuUse(2, 40.0, 2 * memory, 2 * total, 80.0),
        "used-partition": GpuUse(1, 30.0, memory, total, 30.0),
        "dot.ted": GpuUse(1, 0.0, memory, total, 0.0),
        "young": GpuUse(1, 0.0, memory, total, None),
        "moved": GpuUse(1, 0.0, memory, total, 0.0),
    }
    assert gpu_use(stored, "team", pods) == expected


@pytest.mark.parametrize("honors_labels", [False, True])
def test_an_exporter_that_is_scraped_is_read(tmp_path: Path, honors_labels: bool) -> None:
    gpus = [replace(IDLE, utilization=75, number=number) for number in range(2)]
    served = Answer(body=exposition(gpus).encode(), headers={"Content-Type": "text/plain; version=0.0.4"})
    with HttpServer(lambda _: served) as exporter:
        labels = {"namespace": "gpu-operator", "pod": "dcgm-exporter-x2x4q", "container": "exporter"}
        target = {"targets": [exporter.url.removeprefix("http://")], "labels": labels}
        job = {"job_name": "dcgm-exporter", "honor_labels": honors_labels, "static_configs": [target]}
        with running_prometheus({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}, tmp_path) as server:
            prometheus = Prometheus(server.url)
            use = eventually(lambda: gpu_use(prometheus, "team", ["idle"]).get("idle"))
    assert use == GpuUse(2, 75.0, 2048 * MIB, 162_048 * MIB)
