"""Labels of children. Names and values are upstream's: people select their pods by them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tfjob_controller.trainer.names import MAX_LABEL

KUBEFLOW = "kubeflow.org"
JOB_TYPE = "job_type"
RUNTIME_ID = "runtime_id"
TF_JOB_NAME = "tf_job_name"
TRAIN_JOB_NAME = "train_job_name"
TASK_INDEX = "task_index"

# On the Jobs and pods of a job that is resized by a restart: how often it was before they were made.
GENERATION = "kubeflow.org/generation"

# Put on pods by the Job controller: the name of the child Job that made the pod.
POD_JOB_NAME = "batch.kubernetes.io/job-name"

# Selects every child of every job: what the informers of Jobs, Services, Pods and ConfigMaps watch.
CHILD_SELECTOR = KUBEFLOW


def name_value(job_name: str) -> str:
    """A job's name as a label value: at most 63 characters, the last one a letter or digit."""
    return re.sub(r"[^A-Za-z0-9]+$", "", job_name[:MAX_LABEL])


def job_labels(job_name: str, runtime_id: str, name_label: str = TF_JOB_NAME) -> dict[str, str]:
    """What all children of one job carry; `name_label` differs by kind."""
    return {KUBEFLOW: "", RUNTIME_ID: runtime_id, name_label: name_value(job_name)}


def replica_labels(job: Mapping[str, str], replica_type: str, index: int) -> dict[str, str]:
    """What one replica's Job, pod template and Service carry, and what its Service selects."""
    return {**job, JOB_TYPE: replica_type, TASK_INDEX: str(index)}


def selector_string(labels: dict[str, str]) -> str:
    """A label selector as the API takes it in a query, and as the scale subresource shows it."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def replica_type_labels(job: Mapping[str, str], replica_type: str) -> dict[str, str]:
    """What all replicas of one type carry, and no others."""
    return {**job, JOB_TYPE: replica_type}
