"""The queries about GPUs, which contain nothing but valid names, and what is made of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tfjob_controller.client.liveuse import gpus
from tfjob_controller.client.liveuse.gpus import GpuUse, current_query, gpu_use, half_hour_peaks, peak_query
from tfjob_controller.client.liveuse.prometheus import Sample, SeriesLabels

MIB = 2**20


def sample(name: str, value: Any, pod: str = "a", namespace: str = "team", **labels: str) -> Sample:
    return Sample(SeriesLabels(name, **{"namespace": namespace, "pod": pod, **labels}), (0.0, str(value)))


class Recorded:
    """Answers queries with recorded series."""

    def __init__(self, current: Sequence[Sample] = (), peaks: Sequence[Sample] = ()) -> None:
        self.asked: list[str] = []
        self._current, self._peaks = current, peaks

    def query(self, expression: str) -> Sequence[Sample]:
        self.asked.append(expression)
        return self._peaks if "max_over_time" in expression else self._current


def use_of(*current: Sample, peaks: Sequence[Sample] = ()) -> GpuUse | None:
    return gpu_use(Recorded(current, peaks), "team", ["a"]).get("a")


def test_the_gpus_of_a_pod_are_one_mean_and_one_sum() -> None:
    use = use_of(
        sample("DCGM_FI_DEV_GPU_UTIL", 90),
        sample("DCGM_FI_DEV_GPU_UTIL", 30),
        sample("DCGM_FI_DEV_FB_USED", 1000),
        sample("DCGM_FI_DEV_FB_USED", 500),
        sample("DCGM_FI_DEV_FB_FREE", 3000),
        sample("DCGM_FI_DEV_FB_FREE", 3500),
        sample("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.1),
        sample("DCGM_FI_DEV_GPU_UTIL", 5, pod="b"),
        sample("DCGM_FI_DEV_GPU_UTIL", 5, namespace="other"),
        peaks=[sample("", 95)],
    )
    assert use == GpuUse(2, 60.0, 1500 * MIB, 8000 * MIB, 95.0)


def test_a_partition_has_the_activity_of_its_engine() -> None:
    assert use_of(sample("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.25)) == GpuUse(1, 25.0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "101", "9223372036854775794", "x"])
def test_impossible_values_are_no_figures(value: str) -> None:
    peaks = [sample("", value)]
    assert use_of(sample("DCGM_FI_DEV_GPU_UTIL", value), peaks=peaks) == GpuUse(0)
    assert half_hour_peaks(Recorded(peaks=peaks), "team") == {}


def test_memory_without_its_free_part_has_no_total() -> None:
    assert use_of(sample("DCGM_FI_DEV_FB_USED", 8)) == GpuUse(1, memory_used=8 * MIB)


def test_pods_without_series_have_no_use() -> None:
    assert use_of() is None


def test_names_that_kubernetes_refuses_are_in_no_query() -> None:
    recorded = Recorded()
    hostile = ['a"} or up{pod=~".*', "a|b", ".*", "a\nb", "a\\", "", "A"]
    assert gpu_use(recorded, "team", hostile) == {}
    assert recorded.asked == []
    with pytest.raises(ValueError, match="pod must"):
        current_query("team", hostile[:1])
    with pytest.raises(ValueError, match="pod must"):
        peak_query("team", hostile[:1])
    for namespace in ('x"} or up{x="', "a.b"):
        with pytest.raises(ValueError, match="namespace must"):
            peak_query(namespace)


def test_the_dot_of_a_name_matches_only_itself() -> None:
    assert 'exported_namespace="team", exported_pod=~"a[.]b|c"' in current_query("team", ["a.b", "c"])


def test_many_pods_are_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "PODS_EACH", 2)
    monkeypatch.setattr(gpus, "MAX_PODS", 3)
    recorded = Recorded([sample("DCGM_FI_DEV_GPU_UTIL", 1, pod=name) for name in "abcd"])
    assert set(gpu_use(recorded, "team", [*"abcd"])) == {*"abc"}
    assert len(recorded.asked) == 4


def test_all_namespaces_have_no_matcher_of_a_namespace() -> None:
    assert "namespace=" not in peak_query("")
    assert peak_query("team").count('namespace="team"') == 8
