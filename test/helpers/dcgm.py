"""The metrics of NVIDIA's DCGM exporter as text, in the form of its version 4.5.

Source: github.com/NVIDIA/dcgm-exporter internal/pkg/rendermetrics/render_metrics.go (labels and their order),
etc/default-counters.csv (names, help and types), README.md (a recorded response).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

HELP = {
    "DCGM_FI_DEV_GPU_UTIL": "GPU utilization (in %).",
    "DCGM_FI_DEV_FB_FREE": "Framebuffer memory free (in MiB).",
    "DCGM_FI_DEV_FB_USED": "Framebuffer memory used (in MiB).",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "Ratio of time the graphics engine is active.",
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that a container holds. One that is partitioned (`mig`) has no utilization of its own."""

    namespace: str
    pod: str
    utilization: float = 0.0
    used: float = 1024.0
    free: float = 80_000.0
    number: int = 0
    mig: bool = False

    def values(self) -> Mapping[str, float]:
        memory = {"DCGM_FI_DEV_FB_USED": self.used, "DCGM_FI_DEV_FB_FREE": self.free}
        engine = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": self.utilization / 100}
        return memory | engine if self.mig else memory | engine | {"DCGM_FI_DEV_GPU_UTIL": self.utilization}

    def labels(self, prefix: str = "") -> str:
        device = f'gpu="{self.number}",UUID="GPU-604ac76c-d9cf-fef3-62e9-{self.number:012}"'
        model = f'pci_bus_id="00000000:5B:00.{self.number}",device="nvidia{self.number}",modelName="NVIDIA H100"'
        part = ',GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"' if self.mig else ""
        whose = f'{prefix}container="trainer",{prefix}namespace="{self.namespace}",{prefix}pod="{self.pod}"'
        return f'{device},{model}{part},hostname="gpu-node",{whose}'


def exposition(gpus: Sequence[Gpu]) -> str:
    """What the exporter serves."""
    lines = []
    for name, words in HELP.items():
        lines += [f"# HELP {name} {words}", f"# TYPE {name} gauge"]
        lines += [f"{name}{{{gpu.labels()}}} {gpu.values()[name]}" for gpu in gpus if name in gpu.values()]
    return "\n".join(lines) + "\n"


def history(gpus: Sequence[Gpu], times: Iterable[float], *, honors_labels: bool = False) -> str:
    """What a Prometheus has stored of the exporter, as OpenMetrics for `promtool tsdb create-blocks-from`.

    Unless it honours labels, those of the exporter are renamed, and `pod` and `namespace` are those of its own pod.
    """
    prefix = "" if honors_labels else "exported_"
    target = ',instance="10.0.0.7:9400",job="dcgm-exporter"'
    target += "" if honors_labels else ',namespace="gpu-operator",pod="dcgm-exporter-x2x4q",container="exporter"'
    moments, lines = list(times), []
    for name in HELP:
        lines.append(f"# TYPE {name} gauge")
        for gpu in gpus:
            if (value := gpu.values().get(name)) is not None:
                lines += [f"{name}{{{gpu.labels(prefix)}{target}}} {value} {moment:.3f}" for moment in moments]
    return "\n".join([*lines, "# EOF", ""])
