"""The CPU and memory that pods use, from the API of metrics-server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec

from tfjob_controller.api.common.quantity import CPU, MEMORY, amount_of, milli_of
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.kept import kept_decoder
from tfjob_controller.kube.meta import ObjectMeta, Resource
from tfjob_controller.kube.requester import Requester

# Containers of a pod whose use is added up; the API server allows as many as fit into 1.5 MB.
_MAX_CONTAINERS = 500
# Namespace and name.
PodKey: TypeAlias = tuple[str, str]


class _ContainerMetrics(msgspec.Struct, frozen=True):
    usage: dict[str, str] = {}


class PodMetrics(msgspec.Struct, frozen=True):
    """Source: k8s.io/metrics pkg/apis/metrics/v1beta1/types.go."""

    metadata: ObjectMeta
    containers: tuple[_ContainerMetrics, ...] = ()


POD_METRICS: Resource[PodMetrics] = Resource(
    "metrics.k8s.io", "v1beta1", "pods", "PodMetrics", kept_decoder(PodMetrics), requirement="metrics-server"
)


def pod_usage(requester: Requester, namespace: str, selector: str) -> Mapping[PodKey, tuple[int, int]]:
    """The CPU, in thousandths, and memory that each pod of a namespace ("" is all of them) uses.

    Nothing if that cannot be read.

    The API server forbids it also where metrics-server is not installed, so nobody is asked for a right.
    """
    try:
        metrics = ResourceClient(requester, POD_METRICS, timeout_seconds=5.0, retry=False).list(namespace, selector)
    except ApiError:
        return {}
    usage = {}
    for pod in metrics:
        with suppress(ValueError):  # a quantity that is invalid
            usage[pod.metadata.namespace, pod.metadata.name] = (
                _total(pod.containers, CPU),
                _total(pod.containers, MEMORY),
            )
    return usage


def _total(containers: Sequence[_ContainerMetrics], resource: str) -> int:
    texts = (container.usage.get(resource, "0") for container in containers[:_MAX_CONTAINERS])
    return amount_of(resource, sum(map(milli_of, texts)))
