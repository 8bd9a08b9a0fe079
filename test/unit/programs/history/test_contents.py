"""What a record is made of, for every kind of job."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tfjob_controller.client.kinds import snapshot_decoder
from tfjob_controller.jobs.trainingjob import TrainingStatus
from tfjob_controller.kinds.registry import KINDS
from tfjob_controller.programs.history.contents import client_kind, end_of, last_state


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_each_kind_that_the_controller_runs_can_be_recorded(kind: Any) -> None:
    metadata = {"name": "train", "namespace": "team", "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}}
    body = msgspec.json.encode(
        {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, "metadata": metadata}
    )
    job = kind.resource.decode(body)
    known = client_kind(kind.resource)
    for content in (body, last_state(kind.resource, job)):
        seen = snapshot_decoder(known)(content)
        assert seen.metadata.name == "train"
        assert seen.manifest["metadata"]["labels"] == {"a": "b"}
        assert (seen.manifest["apiVersion"], seen.manifest["kind"]) == (kind.resource.api_version, kind.resource.kind)
        assert isinstance(known.work_of(seen.job).status, TrainingStatus)
        assert dict(known.metrics_of(seen.job)) == {}


def test_the_end_of_a_job_is_the_same_for_each_process() -> None:
    assert end_of(TrainingStatus(completion_time="2026-01-01T00:00:01Z")) == "2026-01-01T00:00:01Z"
    assert (
        end_of(TrainingStatus(completion_time="soon", start_time="2026-01-01T01:00:00+01:00")) == "2026-01-01T00:00:00Z"
    )
    assert end_of(TrainingStatus()) == "1970-01-01T00:00:00Z"
