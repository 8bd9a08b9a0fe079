"""The accelerators that a container requests: GPUs and other devices of which a program uses each with one process.

An accelerator is an extended resource, a name of a domain and a kind, that stands for devices or for parts of devices
that programs see as devices, such as MIG instances. Names of memory, cores or other shares of a device do not count.
NeuronCores do, because programs see them as devices.

Sources: the documentation of the device plugins of NVIDIA (with MIG and time-slicing), AMD, Intel, AWS Neuron, Google,
Habana and Huawei, and of the schedulers HAMi and Volcano.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from tfjob_controller.api.common.podtemplates import containers_of
from tfjob_controller.api.common.quantity import milli_of

_DEVICES = re.compile(
    r"""
    [^/]+/[a-z0-9-]*(gpu|npu|tpu|xpu|dcu|gcu|mlu)([-.].*)?  # nvidia.com/gpu, nvidia.com/gpu.shared, google.com/tpu
    | ([^/]+\.)?gpu\.[^/]+/.+                               # gpu.intel.com/i915, gpu.intel.com/xe
    | nvidia\.com/mig-.+                                    # nvidia.com/mig-1g.5gb
    | amd\.com/[a-z]+px_nps[0-9]+                           # amd.com/cpx_nps4
    | aws\.amazon\.com/neuron(core|device)?
    | cloud-tpus\.google\.com/.+
    | habana\.ai/.+                                         # habana.ai/gaudi
    | huawei\.com/ascend.+                                  # huawei.com/Ascend910
    | ([^/]+\.)?furiosa\.ai/.+
    | qualcomm\.com/qaic.*
    """,
    re.VERBOSE | re.IGNORECASE,
)
# Of the kind: amounts that belong to a device beside its count.
_SHARES = re.compile(r"[^/]+/.*(mem|[-.]cores?$|millicores|percent|ratio|tiles|monitoring)", re.IGNORECASE)


def is_accelerator(resource: str) -> bool:
    """Whether a resource of this name is a device that programs use with one process."""
    return bool(_DEVICES.fullmatch(resource)) and not _SHARES.match(resource)


def accelerators_in(amounts: Mapping[str, Any], configured: Collection[str] = ()) -> dict[str, int]:
    """The number of accelerators by resource name, without zeros, in a container's requests or limits.

    `configured` are resources that are accelerators because the controller's config file names them. Raises ValueError
    for an amount that is no quantity.
    """
    counts = {
        name: math.ceil(milli_of(str(amount)) / 1000)
        for name, amount in amounts.items()
        if name in configured or is_accelerator(name)
    }
    return {name: count for name, count in counts.items() if count}


def accelerators_of(requests: Mapping[str, Any], limits: Mapping[str, Any]) -> int:
    """The number of accelerators of a container with these requests and limits, which are equal for devices.

    0 for amounts that are no quantities.
    """
    try:
        return sum((accelerators_in(requests) | accelerators_in(limits)).values())
    except ValueError:
        return 0


def accelerators_of_template(template: Mapping[str, Any] | None) -> int:
    """The number of accelerators of the containers of a PodTemplateSpec; 0 for a value that is none."""
    try:
        resources = [container.get("resources") or {} for container in containers_of(template)]
        return sum(accelerators_of(each.get("requests") or {}, each.get("limits") or {}) for each in resources)
    except (AttributeError, TypeError):
        return 0
