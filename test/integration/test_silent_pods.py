"""Pods and child Jobs whose status does not say why they do not start: their Events do."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.cluster import Cluster, set_pod_running, set_pod_waiting
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.manifests import container, master, pod_template, tfjob, workers
from helpers.playground import Trial, alone
from helpers.plugin import Run
from helpers.poll import eventually
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from localcluster.podstatus import now
from tfjob_controller.api.trainjob.types import TRAINJOBS

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

MISSING = 'MountVolume.SetUp failed for volume "s" : secret "keys" not found'


def report(api: Api, pod: Object, reason: str, message: str, type_: str = "Warning") -> None:
    """Posts an Event as the kubelet of the pod would: by the core API, with a count."""
    meta, moment = pod["metadata"], now()
    about = {"apiVersion": "v1", "kind": "Pod", **{key: meta[key] for key in ("name", "namespace", "uid")}}
    event = {
        "metadata": {"generateName": f"{meta['name']}."},
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "type": type_,
        "source": {"component": "kubelet", "host": pod["spec"]["nodeName"]},
        "count": 1,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
    }
    api.create(f"/api/v1/namespaces/{meta['namespace']}/events", event)


def test_a_pod_whose_volume_is_missing_says_so_in_the_words_of_its_kubelet(trial: Trial, plugin: Run) -> None:
    api = trial.jobs.api
    trial.submit(master(), workers(1, template=alone()))
    pod = trial.await_pod("worker-0")
    set_pod_waiting(api, trial.namespace, pod["metadata"]["name"], "ContainerCreating")
    report(api, pod, "FailedMount", MISSING)
    trial.await_reason(f"worker-0: FailedMount: {MISSING}")
    explained = plugin("explain", trial.name)[1]
    assert f"FailedMount: {MISSING}" in next(line for line in explained.splitlines() if line.startswith("now: "))
    set_pod_running(api, trial.namespace, pod["metadata"]["name"])
    trial.await_status(lambda status: not status.get("reason"))


def test_a_job_without_a_pod_says_why_the_job_controller_creates_none(
    control_plane: Cluster, kubectl: Kubectl, kubelet: FakeKubelet, api: Api, namespace: str
) -> None:
    folder = f"/api/v1/namespaces/{namespace}/resourcequotas"
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "limited"},
        "spec": {"hard": {"pods": "0"}},
    }
    api.create(folder, quota)
    eventually(lambda: api.get(f"{folder}/limited").get("status", {}).get("used"))
    jobs, train = Jobs(api, namespace), Jobs(api, namespace, TRAINJOBS)
    with running_controller(control_plane.kubeconfig, namespace):
        jobs.submit(tfjob(master(template=pod_template(container())), name="held-up"))
        train.submit(trainjob("held-up", 2))
        for each, replica in ((jobs, "master-0"), (train, "node-0")):
            words = (f"{replica}: FailedCreate: Error creating: ", "exceeded quota")
            eventually(
                lambda each=each, words=words: all(word in each.status("held-up").get("reason", "") for word in words)  # type: ignore[misc]
            )
