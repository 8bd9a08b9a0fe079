"""TrainJobs on real nodes, for tests that wait for their end as a user does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.kubectl import Kubectl
from helpers.poll import eventually
from localcluster import nodes as nodes_module
from tfjob_controller.api.gang import COMPLETION_INDEX_LABEL

# Several interpreters with large libraries start on two processors that may be busy.
PATIENCE_SECONDS = 600.0

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrainJobs:
    """The TrainJobs of one namespace."""

    cluster: Cluster
    namespace: str
    kubectl: Kubectl

    def give(self, *names: str) -> None:
        """Loads these images onto the nodes."""
        if self.cluster.plane is None:
            pytest.skip("needs images that an existing cluster may not have: unset KUBECONFIG")
        for name in names:
            nodes_module.load_image(self.cluster.folder, name)

    def status(self, name: str) -> Object:
        path = f"/apis/kubeflow.org/v2alpha1/namespaces/{self.namespace}/trainjobs/{name}"
        status: Object = self.cluster.api.get(path).get("status", {})
        return status

    def await_end(self, name: str) -> Object:
        eventually(lambda: self.status(name).get("phase") in ("Done", "Failed"), PATIENCE_SECONDS, 0.1)
        return self.status(name)

    def await_success(self, name: str) -> Object:
        status = self.await_end(name)
        assert (status["phase"], status["state"]) == ("Done", "SUCCESS"), status
        return status

    def log(self, name: str, role: str = "node", index: int = 0, container: str = "") -> str:
        of_index = COMPLETION_INDEX_LABEL if role == "node" else "task_index"
        labels = f"train_job_name={name},job_type={role},{of_index}={index}"
        return self.kubectl.must("logs", "-l", labels, "-c", container or role, "--tail=-1")
