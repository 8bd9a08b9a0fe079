"""Policies of jobs that plans name as the API does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Which pods are deleted when a job has finished.
CLEAN_POD_POLICIES = CLEAN_ALL, CLEAN_RUNNING, CLEAN_NONE = ("All", "Running", "None")
# How the number of replicas changes while a job runs.
RESIZES = IN_PLACE, BY_RESTART = ("InPlace", "Restart")
# Of the pod templates of replicas: a batch Job does not allow Always.
RESTART_POLICIES = ON_FAILURE, NEVER = ("OnFailure", "Never")
# Of replicas that are pods without Jobs, in addition (`kubeflow.org/v1`): by the exit code, a replica runs again in
# another pod.
EXIT_CODE = "ExitCode"


def restart_policy_of(template: Mapping[str, Any] | None) -> str:
    """The restartPolicy of a pod template. The default is not Always, which a batch Job does not allow."""
    pod_spec = (template or {}).get("spec") or {}
    return str(pod_spec.get("restartPolicy") or ON_FAILURE)
