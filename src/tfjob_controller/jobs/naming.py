"""Names and labels of children.

A child Job and its Service share the name `<job:.40>-<role>-<RuntimeId>-<index>`. A Service's name is a DNS-1035 label
(letter first, no dots, at most 63), a job's name is a DNS-1123 subdomain (dots, a digit first, at most 253): so dots
become `-` and a name that does not start with a letter gets one. What makes names unique is the RuntimeId, not the cut.

Names and values of labels are upstream's, since users select pods by them.
"""

from __future__ import annotations

import hashlib
import random
import re
import string
from collections.abc import Container, Mapping

from tfjob_controller.api.gang import COMPLETION_INDEX_LABEL

JOB_NAME_CUT = 40
MAX_LABEL = 63
RUNTIME_ID_LENGTH = 4
# Precedes a job name that does not start with a letter.
_FIRST_LETTER = "j"


def name_prefix(job_name: str, length: int = JOB_NAME_CUT) -> str:
    """The part of a child's name that comes from the job: a DNS-1035 label of at most `length` characters."""
    label = job_name.lower().replace(".", "-")
    if not label[:1].isalpha():
        label = _FIRST_LETTER + label
    return label[:length].rstrip("-")


def child_name(job_name: str, role: str, runtime_id: str, index: int) -> str:
    """Name of the Job and the Service of one replica (`example-job-ps-76no-1`); `role` is in lower case."""
    tail = f"-{role}-{runtime_id}-{index}"
    return name_prefix(job_name, min(JOB_NAME_CUT, MAX_LABEL - len(tail))) + tail


def indexed_job_name(job_name: str, role: str, runtime_id: str) -> str:
    """Name of the Indexed Job that runs all replicas of a role: with an index it is the name of a replica."""
    return child_name(job_name, role, runtime_id, 0).removesuffix("-0")


def gang_name(job_name: str, runtime_id: str) -> str:
    """Name of the job's Gang: that of its children without role and index."""
    return f"{name_prefix(job_name)}-{runtime_id}"


def config_map_name(runtime_id: str) -> str:
    """Name of the ConfigMap that holds the default parameter server's script."""
    return f"cm-ps-{runtime_id}"


def replica_id(role: str, index: int) -> str:
    """Returns the id of a replica in status, reasons and events, such as `worker-3`."""
    return f"{role}-{index}"


def replica_id_of(labels: Mapping[str, str]) -> str:
    """Returns the id of the replica that a child with these labels belongs to, such as `worker-3`.

    Without an index, as an Indexed Job has none, it returns the role; without a role, the empty string.
    """
    role = (labels.get(JOB_TYPE) or labels.get(REPLICA_TYPE_LABEL, "")).lower()
    index = labels.get(TASK_INDEX) or labels.get(COMPLETION_INDEX_LABEL) or labels.get(REPLICA_INDEX_LABEL)
    return replica_id(role, int(index)) if role and index and index.isdecimal() else role


def new_runtime_id(taken: Container[str], rng: random.Random) -> str:
    """4 random characters of `[0-9a-z]`, a letter first, that are not in `taken` (those of the other jobs)."""
    while True:
        first = rng.choice(string.ascii_lowercase)
        rest = rng.choices(string.digits + string.ascii_lowercase, k=RUNTIME_ID_LENGTH - 1)
        candidate = first + "".join(rest)
        if candidate not in taken:
            return candidate


def runtime_id_of(uid: str) -> str:
    """Returns the RuntimeId of a job whose kind has no field for it: 4 characters as above, derived from its UID.

    Two jobs may have the same one, so objects that are found by it are also compared by name or owner.
    """
    number = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8], "big")
    digits = string.digits + string.ascii_lowercase
    number, first = divmod(number, len(string.ascii_lowercase))
    text = string.ascii_lowercase[first]
    for _ in range(RUNTIME_ID_LENGTH - 1):
        number, digit = divmod(number, len(digits))
        text += digits[digit]
    return text


KUBEFLOW = "kubeflow.org"
JOB_TYPE = "job_type"
RUNTIME_ID = "runtime_id"
TF_JOB_NAME = "tf_job_name"
TRAIN_JOB_NAME = "train_job_name"
TASK_INDEX = "task_index"

# On the Jobs and pods of a job with restart attempts: the attempt in which they were created.
RESTART_ATTEMPT = "kubeflow.org/generation"
# On the Job of a replica: how often the replica was restarted before this Job was created. Absent for 0.
REPLICA_RESTARTS = "kubeflow.org/restarts"

# The Job controller sets this label on pods: the name of the child Job that created the pod.
POD_JOB_NAME = "batch.kubernetes.io/job-name"
# The variable that the Job controller sets in each container of an Indexed Job, and how others refer to it.
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
INDEX_REFERENCE = f"$({INDEX_VARIABLE})"

# Labels of the pods and Services of jobs that have no child Jobs. The first one selects those of a kind.
OPERATOR_NAME_LABEL = "training.kubeflow.org/operator-name"
JOB_NAME_LABEL = "training.kubeflow.org/job-name"
REPLICA_TYPE_LABEL = "training.kubeflow.org/replica-type"
REPLICA_INDEX_LABEL = "training.kubeflow.org/replica-index"
# Selects every child of all jobs that have child Jobs, for the informers of Jobs, Services, Pods and ConfigMaps.
CHILD_SELECTOR = KUBEFLOW


def name_value(job_name: str) -> str:
    """A job's name as a label value: at most 63 characters, the last one a letter or digit."""
    return re.sub(r"[^A-Za-z0-9]+$", "", job_name[:MAX_LABEL])


def job_labels(job_name: str, runtime_id: str, name_label: str = TF_JOB_NAME) -> dict[str, str]:
    """Returns the labels of all children of one job; `name_label` differs by kind."""
    return {KUBEFLOW: "", RUNTIME_ID: runtime_id, name_label: name_value(job_name)}


def replica_labels(job: Mapping[str, str], replica_type: str, index: int) -> dict[str, str]:
    """Returns the labels of a replica's Job, pod template and Service, which are also the selector of the Service."""
    return {**job, JOB_TYPE: replica_type, TASK_INDEX: str(index)}


def selector_string(labels: dict[str, str]) -> str:
    """A label selector as the API takes it in a query, and as the scale subresource shows it."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def replica_type_labels(job: Mapping[str, str], replica_type: str) -> dict[str, str]:
    """Returns the labels that all replicas of one type have, and no others."""
    return {**job, JOB_TYPE: replica_type}
