"""Which resources are accelerators, and how many of them a container requests."""

from __future__ import annotations

from typing import Any

import pytest

from tfjob_controller.api.common.accelerators import accelerators_in, is_accelerator

DEVICES = (
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-1g.10gb.me.shared",
    "amd.com/gpu",
    "amd.com/cpx_nps4",
    "gpu.intel.com/i915",
    "habana.ai/gaudi",
    "aws.amazon.com/neuron",
    "google.com/tpu",
    "cloud-tpus.google.com/preemptible-v2",
    "huawei.com/Ascend910",
    "huawei.com/npu",
    "cambricon.com/mlu",
    "furiosa.ai/rngd",
    "volcano.sh/vgpu-number",
    "deviceclass.resource.kubernetes.io/gpu.example.com",
)
OTHERS = (
    "cpu",
    "hugepages-2Mi",
    "gpu",
    "example.com/nic",
    "rdma/hca",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "aliyun.com/gpu-mem",
    "koordinator.sh/gpu-memory-ratio",
    "huawei.com/Ascend910A-memory",
    "gpu.intel.com/memory.max",
    "gpu.intel.com/millicores",
    "gpu.intel.com/i915_monitoring",
)


@pytest.mark.parametrize("resource", DEVICES)
def test_a_device_of_any_vendor_is_an_accelerator(resource: str) -> None:
    assert is_accelerator(resource)


@pytest.mark.parametrize("resource", OTHERS)
def test_other_resources_and_shares_of_a_device_are_no_accelerators(resource: str) -> None:
    assert not is_accelerator(resource)


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param({"cpu": "16", "nvidia.com/gpu": "2"}, {"nvidia.com/gpu": 2}, id="as-text"),
        pytest.param({"amd.com/gpu": 0}, {}, id="zero"),
        pytest.param(
            {"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-2g.10gb": 2},
            {"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-2g.10gb": 2},
            id="two-kinds",
        ),
        pytest.param({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}, {"nvidia.com/gpu": 1}, id="with-memory"),
        pytest.param({"example.com/card": 4}, {"example.com/card": 4}, id="of-the-config-file"),
    ],
)
def test_accelerators_are_counted_by_resource(amounts: dict[str, Any], expected: dict[str, int]) -> None:
    assert accelerators_in(amounts, {"example.com/card"}) == expected


def test_an_amount_that_is_no_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="not a quantity: 'many'"):
        accelerators_in({"nvidia.com/gpu": "many"})
