"""Events on a real API server, and as kubectl shows them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.eventcontract import STOP_SECONDS, EventContract, Object, Read
from helpers.kubectl import Kubectl
from helpers.poll import eventually
from localcluster.api import Api
from tfjob_controller.kube.events.recorder import EVENTS, EventRecorder
from tfjob_controller.kube.events.series import ObjectReference
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import RealClock

pytestmark = pytest.mark.cluster

SET_BY_SERVER = ("metadata", "deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount")


class TestEvents(EventContract):
    @pytest.fixture
    def events(self, requester: Requester, namespace: str) -> Read:
        def read() -> list[Object]:
            found = json.loads(requester.request("GET", EVENTS.path(namespace)))["items"]
            return [
                {
                    "apiVersion": "events.k8s.io/v1",
                    "kind": "Event",
                    **{key: value for key, value in event.items() if key not in SET_BY_SERVER[1:]},
                }
                for event in found
                if event["reportingController"] == "tfjob-controller"
            ]

        return read


@pytest.fixture
def real_recorder(requester: Requester) -> Iterator[EventRecorder]:
    recorder = EventRecorder(requester, RealClock(), "tfjob-controller", "tfjob-controller-7d9f_abc")
    recorder.start()
    yield recorder
    assert recorder.stop(STOP_SECONDS)


@pytest.fixture
def kubectl(control_plane: Cluster, namespace: str, tmp_path: Path) -> Kubectl:
    return Kubectl(control_plane.kubeconfig, tmp_path, namespace)


def test_kubectl_shows_type_reason_object_count_and_note(
    real_recorder: EventRecorder, api: Api, namespace: str, kubectl: Kubectl
) -> None:
    made = api.create(
        f"/api/v1/namespaces/{namespace}/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "thing"}},
    )
    thing = ObjectReference("v1", "ConfigMap", namespace, "thing", made["metadata"]["uid"])
    real_recorder.event(thing, "Normal", "SuccessfulCreate", "Created Job thing-worker-0", "Create")
    for count in range(1, 4):
        real_recorder.event(thing, "Warning", "FailedCreate", "exceeded quota: count/jobs.batch", "Create")
        eventually(lambda count=count: real_recorder.statistics().pending == 0 or count == 3)
    real_recorder.stop(STOP_SECONDS)

    table = kubectl.must("get", "events", "-o", "wide", "--sort-by=.metadata.creationTimestamp").splitlines()
    columns = table[0].split()
    assert columns[:2] == ["LAST", "SEEN"]
    normal = next(line for line in table if "SuccessfulCreate" in line)
    warning = next(line for line in table if "FailedCreate" in line)
    assert re.match(r"\d+s +Normal +SuccessfulCreate +configmap/thing ", normal)
    assert re.match(r"\d+s +Warning +FailedCreate +configmap/thing ", warning)
    assert "tfjob-controller, tfjob-controller-7d9f_abc" in warning
    assert re.search(r"exceeded quota: count/jobs.batch +\d+s +3 +thing\.", warning)
    assert re.search(r"Created Job thing-worker-0 +\d+s +1 +thing\.", normal)

    described = kubectl.must("describe", "configmap", "thing")
    assert re.search(r"Warning +FailedCreate +\d+s \(x3 over \d+s\) +tfjob-controller +exceeded quota", described)
    assert re.search(r"Normal +SuccessfulCreate +\d+s +tfjob-controller +Created Job thing-worker-0", described)
    assert "FailedCreate" in kubectl.must("events", "--for", "configmap/thing", "--types=Warning")


def test_a_terminating_namespace_gets_no_events_and_the_others_do(
    real_recorder: EventRecorder, api: Api, namespace: str, requester: Requester
) -> None:
    dying = new_namespace(api)
    holder = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "holder", "finalizers": ["example.com/hold"]},
    }
    api.create(f"/api/v1/namespaces/{dying}/configmaps", holder)
    delete_namespace(api, dying)
    eventually(lambda: api.get(f"/api/v1/namespaces/{dying}")["status"]["phase"] == "Terminating")
    real_recorder.event(ObjectReference("v1", "Thing", dying, "a", "uid-1"), "Normal", "Seen", "it is there")
    real_recorder.event(ObjectReference("v1", "Thing", namespace, "b", "uid-2"), "Normal", "Seen", "it is there")
    eventually(lambda: real_recorder.statistics().counts.created == 1)
    assert real_recorder.statistics().counts.refused == 1
    api.patch(f"/api/v1/namespaces/{dying}/configmaps/holder", {"metadata": {"finalizers": None}})


def test_a_namespace_that_is_gone_gets_no_events(real_recorder: EventRecorder) -> None:
    real_recorder.event(ObjectReference("v1", "Thing", "never-was", "a", "uid-1"), "Normal", "Seen", "it is there")
    eventually(lambda: real_recorder.statistics().counts.refused == 1)
