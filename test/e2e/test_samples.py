"""The samples train real models: TensorFlow in every replica, over both nodes."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

from helpers.controller import Jobs
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.podwatch import watching_pods
from helpers.poll import eventually

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("tensorflow")]

# Five TensorFlows start on two processors that may be busy otherwise.
PATIENCE_SECONDS = 600.0
# A server that does not heed SIGTERM is killed after the pod's grace of 30 s, and its exit code is 137.
TERMINATED = 128 + signal.SIGTERM

Object = dict[str, Any]


def losses(log: str) -> tuple[float, float]:
    before, after = (re.search(rf"^loss {when}: (\d+\.\d+)$", log, re.MULTILINE) for when in ("before", "after"))
    assert before is not None, log
    assert after is not None, log
    return float(before[1]), float(after[1])


def run(jobs: Jobs, kubectl: Kubectl, sample: str) -> Object:
    kubectl.must("apply", "-f", str(MANIFESTS / "samples" / f"{sample}.yaml"))
    eventually(lambda: jobs.phase(sample) in ("Done", "Failed"), PATIENCE_SECONDS)
    status = jobs.status(sample)
    assert (status["phase"], status["state"]) == ("Done", "Succeeded"), status
    return status


def test_parameter_servers_train_a_model_and_heed_sigterm_when_it_is_done(jobs: Jobs, kubectl: Kubectl) -> None:
    with watching_pods(jobs.api, jobs.namespace) as seen:
        run(jobs, kubectl, "train-ps")
        before, after = losses(kubectl.must("logs", "-l", "job_type=MASTER", "--tail=-1"))
        assert after < before / 10
        servers = seen.names("PS")
        assert len(servers) == 2
        eventually(lambda: seen.deleted.issuperset(servers))
        assert [seen.exit_codes(name) for name in servers] == [[TERMINATED], [TERMINATED]]


@pytest.mark.long
def test_workers_train_a_model_in_step(jobs: Jobs, kubectl: Kubectl) -> None:
    run(jobs, kubectl, "train-mirrored")
    log = kubectl.must("logs", "-l", "job_type=WORKER,task_index=0", "--tail=-1")
    before, after = losses(log)
    assert after < before / 10
    assert re.search(r"^worker-0: (\d+) replicas in step$", log, re.MULTILINE), log
