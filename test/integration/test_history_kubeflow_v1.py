"""The history of jobs of `kubeflow.org/v1`, which own their pods, on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helpers.cluster import Cluster, new_namespace
from helpers.controller import running_controller
from helpers.poll import eventually
from integration.test_kubeflow_v1 import KINDS, TYPES, Trial, cluster
from tfjob_controller.client.history import History
from tfjob_controller.client.history.record import Record

pytestmark = pytest.mark.cluster

__all__ = ["cluster"]


@pytest.fixture(scope="module")
def recording(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A namespace whose controller has a history, and the history's directory."""
    name, folder = new_namespace(cluster.api), str(tmp_path_factory.mktemp("history"))
    options: dict[str, Any] = {"kubeflow_v1_api": KINDS, "trainjobs": False, "gang_scheduling": "off"}
    with running_controller(cluster.kubeconfig, name, history=folder, **options):
        yield name, folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_of_each_kind_is_recorded_with_its_replicas(
    cluster: Cluster, recording: tuple[str, str], kind: str
) -> None:
    (namespace, folder), name = recording, f"kept-{kind.lower()}"
    decides, _ = TYPES.get(kind, ("Master", "Worker"))
    trial = Trial(cluster.api, namespace, kind, name, {decides: 1})
    trial.await_conditions(("Created", True), ("Running", True))
    trial.exits(f"{decides.lower()}-0", 0)

    def find() -> Record | None:
        entries = [entry for entry in History.open(folder).jobs(namespace) if entry.name == name]
        return History.open(folder).read(entries[0]) if entries else None

    record: Record = eventually(find)
    assert (record.api_version, record.kind, record.state) == ("kubeflow.org/v1", kind, "Succeeded")
    assert record.manifest["status"]["conditions"]
    assert record.timeline
    assert record.description is not None
    assert [row.replica for row in record.description.replicas] == [f"{decides.lower()}-0"]
