"""A queue of the real Kueue, with a quota of CPUs."""

from __future__ import annotations

from dataclasses import dataclass

from localcluster.api import Api

KUEUE = "/apis/kueue.x-k8s.io/v1beta1"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True, slots=True)
class Queue:
    """A ClusterQueue with a LocalQueue of the name `queue` in the namespace of the same name."""

    api: Api
    name: str

    @property
    def path(self) -> str:
        return f"{KUEUE}/clusterqueues/{self.name}"

    def used(self) -> str:
        """Returns the CPUs that Kueue counts as used."""
        flavors = self.api.get(self.path).get("status", {}).get("flavorsUsage") or ()
        return next((each["total"] for one in flavors for each in one["resources"] if each["name"] == "cpu"), "")


def make_queue(queue: Queue, cpus: int) -> None:
    api, namespace = queue.api, queue.name
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": "default"}}
    resource = {"name": "cpu", "nominalQuota": str(cpus)}
    flavors = [{"name": "default", "resources": [resource]}]
    cluster_queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": namespace},
        "spec": {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        },
    }
    local_queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": "queue", "namespace": namespace},
        "spec": {"clusterQueue": namespace},
    }
    api.create_if_missing(f"{KUEUE}/resourceflavors", flavor)
    api.create_if_missing(f"{KUEUE}/clusterqueues", cluster_queue)
    api.create_if_missing(f"{KUEUE}/namespaces/{namespace}/localqueues", local_queue)
