"""The object that another scheduler knows a gang by, whatever its kind: a PodGroup of Volcano's, of coscheduling's or
of Kubernetes' own, or a Workload of Kueue's. What stands in it is read by `trainer.podgroup`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.meta import ObjectMeta


class PodGroup(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`spec` and `status` as they are on the wire; never mutated."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


decode_pod_group = decoder_for(PodGroup)
