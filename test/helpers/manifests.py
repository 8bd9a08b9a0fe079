"""TFJob manifests for tests, as dicts."""

from __future__ import annotations

from typing import Any

Manifest = dict[str, Any]

TEMPLATE: Manifest = {
    "spec": {
        "containers": [{"name": "tensorflow", "image": "localhost/tensorflow"}],
        "restartPolicy": "OnFailure",
    }
}


def replica(kind: str, replicas: Any = None, template: Any = TEMPLATE, **fields: Any) -> Manifest:
    """Returns one entry of replicaSpecs; None leaves a field out."""
    given = {"tfReplicaType": kind, "replicas": replicas, "template": template, **fields}
    return {name: value for name, value in given.items() if value is not None}


def master(**fields: Any) -> Manifest:
    return replica("MASTER", **fields)


def workers(replicas: Any = 1, **fields: Any) -> Manifest:
    return replica("WORKER", replicas, **fields)


def parameter_servers(replicas: Any = 2, **fields: Any) -> Manifest:
    return replica("PS", replicas, **{"template": None, **fields})


def tfjob(*replica_specs: Any, name: str = "example-job", **spec: Any) -> Manifest:
    """Returns a job of these replica types; by default that of the tutorial: 1 MASTER, 1 WORKER, 2 PS."""
    entries = list(replica_specs) or [master(replicas=1), workers(), parameter_servers()]
    return {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"replicaSpecs": entries, **spec},
    }


def pod_template(*containers: Any, **pod_spec: Any) -> Manifest:
    return {"spec": {"containers": list(containers), **pod_spec}}


def container(name: str = "tensorflow", **fields: Any) -> Manifest:
    return {"name": name, "image": "localhost/tensorflow", **fields}


def gang_job(name: str, count: int, **gang: Any) -> Manifest:
    """A master and workers of one CPU each, on nodes that take four. They run until the test ends them."""
    main = {"name": "tensorflow", "image": "localhost/none", "resources": {"requests": {"cpu": "1"}}}
    template = pod_template(main)
    specs = master(replicas=1, template=template), workers(count, template=template)
    return tfjob(*specs, name=name, gang={"enabled": True, **gang})
