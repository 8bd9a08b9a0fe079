"""What the controller adds to templates, on real nodes: the default parameter server, and processes by devices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from helpers.cluster import Cluster
from helpers.controller import Jobs
from helpers.poll import eventually
from localcluster.api import Api
from tfjob_controller.api.trainjob.types import TRAINJOBS

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

PATIENCE_SECONDS = 180.0
NODE = "/api/v1/nodes/node-1"
# The chief ends once the parameter server answers.
PARAMETER_SERVER = """
apiVersion: kubeflow.org/v1alpha1
kind: TFJob
metadata: {name: restricted}
spec:
  tfImage: localhost/tensorflow
  replicaSpecs:
    - tfReplicaType: MASTER
      template:
        spec:
          securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
          containers:
            - name: tensorflow
              image: localhost/base
              imagePullPolicy: IfNotPresent
              securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
              resources: {limits: {cpu: 100m, memory: 64Mi}}
              command:
                - python3
                - -c
                - |
                  import json, os, socket, time
                  host, port = json.loads(os.environ["TF_CONFIG"])["cluster"]["ps"][0].rsplit(":", 1)
                  while True:
                      try:
                          socket.create_connection((host, port), 1).close()
                          break
                      except OSError:
                          time.sleep(0.5)
    - tfReplicaType: PS
      template: {spec: {containers: [{name: tensorflow, resources: {limits: {cpu: 500m, memory: 1Gi}}}]}}
"""
LIMITS = {"limits.cpu": "4", "limits.memory": "4Gi"}
HEAD = {"apiVersion": "kubeflow.org/v2alpha1"}
DEVICES = (
    *("nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared", "nvidia.com/gpu"),
    *("aws.amazon.com/neuron", "google.com/tpu"),
)


@pytest.fixture
def devices(own_nodes: Cluster) -> Iterator[tuple[str, ...]]:
    """Resources of which node-1 has two each. No plugin hands them out, so the kubelet only counts them."""
    for value in ("2", None):
        own_nodes.api.patch(f"{NODE}/status", {"status": {"capacity": dict.fromkeys(DEVICES, value)}})
        if value is not None:
            eventually(lambda: has_devices(own_nodes.api), PATIENCE_SECONDS)
            yield DEVICES


def has_devices(api: Api) -> bool:
    return bool(set(DEVICES) <= api.get(NODE)["status"]["allocatable"].keys())


def test_the_default_parameter_server_serves_in_a_restricted_namespace_with_a_quota(
    own_nodes: Cluster, space: str, jobs: Jobs, tensorflow: None
) -> None:
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    own_nodes.api.patch(f"/api/v1/namespaces/{space}", {"metadata": {"labels": enforced}})
    quota = {"metadata": {"name": "limits"}, "spec": {"hard": LIMITS}}
    own_nodes.api.create(f"/api/v1/namespaces/{space}/resourcequotas", quota)
    jobs.submit(yaml.safe_load(PARAMETER_SERVER))
    assert jobs.await_phase("Done", "restricted", PATIENCE_SECONDS).get("restarts", 0) == 0


def test_a_node_has_a_process_for_each_of_its_devices(
    own_nodes: Cluster, space: str, jobs: Jobs, devices: tuple[str, ...]
) -> None:
    """torchrun counts the GPUs that it sees by itself (auto)."""
    trainjobs = Jobs(own_nodes.api, space, TRAINJOBS)
    container = {"name": "node", "image": "localhost/base", "imagePullPolicy": "IfNotPresent"}
    runtime = {"framework": "torch", "numNodes": 1, "templates": {"node": {"spec": {"containers": [container]}}}}
    path = f"/apis/kubeflow.org/v2alpha1/namespaces/{space}/trainingruntimes"
    own_nodes.api.create(path, {**HEAD, "kind": "TrainingRuntime", "metadata": {"name": "torch"}, "spec": runtime})
    names = {device: "devices-" + "".join(filter(str.isalnum, device)) for device in devices}
    for device, name in names.items():
        expected = "auto" if device == "nvidia.com/gpu" else "2"
        trainer = {
            "command": ["sh", "-c", f'test "$PET_NPROC_PER_NODE" = {expected}'],
            "resourcesPerNode": {"limits": {"cpu": "100m", device: 2}},
        }
        spec = {"runtimeRef": {"kind": "TrainingRuntime", "name": "torch"}, "trainer": trainer}
        trainjobs.submit({**HEAD, "kind": "TrainJob", "metadata": {"name": name}, "spec": spec})
    for name in names.values():
        trainjobs.await_phase("Done", name, PATIENCE_SECONDS)
