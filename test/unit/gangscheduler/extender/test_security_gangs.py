"""Pods that claim a place which is not theirs, and requests that no kube-scheduler would send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.gangworld import NAMESPACE, GangWorld
from tfjob_controller.gangscheduler.extender.verbs import NO_GANG
from tfjob_controller.gangscheduler.extender.wire import BadRequestError, WirePod, decode_bind_args, decode_filter_args
from tfjob_controller.kube.meta import ObjectMeta

LABELS = {
    "scheduling.kubeflow.org/gang": "one",
    "scheduling.kubeflow.org/member": "worker-0",
    "scheduling.kubeflow.org/attempt": "1",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("one", id="by the same name"),
        pytest.param(f"{NAMESPACE}/one", id="with the other namespace before it"),
        pytest.param(f"../{NAMESPACE}/one", id="by a way up"),
    ],
)
def test_a_pod_is_a_member_of_gangs_of_its_own_namespace_alone(world: GangWorld, name: str) -> None:
    labels = {**LABELS, "scheduling.kubeflow.org/gang": name}
    pod = WirePod(ObjectMeta(name="pod", namespace="another", labels=labels), b"{}")
    who = world.placements.member_of(pod)
    assert who is not None
    assert who.gang.startswith("another/")
    assert world.placements.node_for(who.gang, who.attempt, who.name).reason == NO_GANG


def forged(value: Any) -> bytes:
    return json.dumps({"Pod": value, "PodName": value, "PodNamespace": "x", "PodUID": "x", "Node": "x"}).encode()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"Pod":' * 5_000 + b"1" + b"}" * 5_000, id="levels"),
        pytest.param(
            b'{"PodName":%s,"Pod":%s}' % (b"[" * 9_000 + b"]" * 9_000, b"[" * 9_000 + b"]" * 9_000), id="lists"
        ),
        pytest.param(forged(["x"] * 10_000), id="many"),
        pytest.param(b'{"Pod": ' + b"9" * 100_000 + b"}", id="a number of 100,000 digits"),
        pytest.param(
            b'{"Pod": {"metadata": {"labels": {"scheduling.kubeflow.org/gang": 1}}}, "PodName": 1}',
            id="labels that are no text",
        ),
    ],
)
@pytest.mark.parametrize("decode", [decode_filter_args, decode_bind_args])
def test_a_forged_request_is_refused_in_one_line(decode: Any, body: bytes) -> None:
    with pytest.raises(BadRequestError) as refused:
        decode(body)
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 500
