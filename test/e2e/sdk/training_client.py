"""What a user of training-operator's SDK does with two jobs, of which one fails; prints what the SDK returned, as JSON.

training_client.py NAMESPACE IMAGE FAILING_IMAGE
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kubeflow.training import TrainingClient


def main(namespace: str, image: str, failing: str) -> dict[str, Any]:
    client = TrainingClient(namespace=namespace, job_kind="PyTorchJob")
    client.create_job(name="sums", base_image=image, num_workers=2)
    client.wait_for_job_conditions("sums", polling_interval=1)
    logs, events = client.get_job_logs("sums", is_master=False, verbose=True)
    seen = {
        "succeeded": client.is_job_succeeded("sums"),
        "running": client.is_job_running("sums"),
        "pods": client.get_job_pod_names("sums"),
        "workers": client.get_job_pod_names("sums", replica_type="worker", replica_index=0),
        "log of master": client.get_job_logs("sums")[0],
        "followed": client.get_job_logs("sums", follow=True)[0],
        "logs": logs,
        "events": events,
    }
    client.create_job(name="fails", base_image=failing, num_workers=1, job_kind="TFJob")
    seen["failure"] = error_of(client.wait_for_job_conditions, "fails", job_kind="TFJob", polling_interval=1)
    seen["listed"] = [job.metadata.name for kind in ("PyTorchJob", "TFJob") for job in client.list_jobs(job_kind=kind)]
    client.delete_job("sums")
    client.delete_job("fails", job_kind="TFJob")
    seen["deleted"] = error_of(client.get_job, "sums")
    return seen


def error_of(call: Any, *arguments: Any, **named: Any) -> str:
    try:
        call(*arguments, **named)
    except RuntimeError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    answer, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps(main(*sys.argv[1:])), file=answer)
