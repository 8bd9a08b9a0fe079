"""The default parameter server on real nodes: the controller adds its program, and what a restricted pod needs."""

from __future__ import annotations

import pytest
import yaml

from helpers.cluster import Cluster
from helpers.controller import Jobs

pytestmark = pytest.mark.nodes

PATIENCE_SECONDS = 600.0
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


def test_the_default_parameter_server_serves_in_a_restricted_namespace_with_a_quota(
    own_nodes: Cluster, space: str, jobs: Jobs, tensorflow: None
) -> None:
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    own_nodes.api.patch(f"/api/v1/namespaces/{space}", {"metadata": {"labels": enforced}})
    quota = {"metadata": {"name": "limits"}, "spec": {"hard": LIMITS}}
    own_nodes.api.create(f"/api/v1/namespaces/{space}/resourcequotas", quota)
    jobs.submit(yaml.safe_load(PARAMETER_SERVER))
    assert jobs.await_phase("Done", "restricted", PATIENCE_SECONDS).get("restarts", 0) == 0
