"""The record: an annotation with what decisions need of a job, and the status of its kind has no field for.

Users can write it as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from tfjob_controller.api.common.schema import INT32_MAX
from tfjob_controller.kube.meta import ObjectMeta

RECORD_ANNOTATION = "kubeflow.org/training-status"
# A longer value is not a record of this controller. That of a job of 5,000 replicas, each with a success and a count of
# restarts, has 160 KB; the API server takes 256 KiB of annotations.
MAX_RECORD = 192 * 1024
# A sum of larger numbers is no number for a metric.
RecordedCount: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]


class RecordAnnotations(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotations that the controller reads."""

    record: str = msgspec.field(default="", name=RECORD_ANNOTATION)


class RecordedMeta(ObjectMeta, frozen=True, rename="camel", omit_defaults=True):
    """The metadata of a job with a record."""

    annotations: RecordAnnotations = RecordAnnotations()


def record_patch(meta: ObjectMeta, record: str) -> Mapping[str, Any]:
    """Returns the merge patch that writes the record, unless the job has changed since it was read."""
    version = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    return {"metadata": {**version, "annotations": {RECORD_ANNOTATION: record}}}
