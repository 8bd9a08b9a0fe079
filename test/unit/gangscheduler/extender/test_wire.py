"""The rules of gangscheduler/extender/wire.py, one test each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tfjob_controller.api.gang import GANG_LABEL
from tfjob_controller.gangscheduler.bindrequests import BindRequest
from tfjob_controller.gangscheduler.extender.wire import (
    NEEDS_NODE_CACHE,
    BadRequestError,
    BindResult,
    FilterResult,
    decode_bind_args,
    decode_filter_args,
    decode_names,
    encode_answer,
)

POD = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "labels": {GANG_LABEL: "b", "another": ""}},
    "spec": {"containers": []},
}
BINDING = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u1", "Node": "n1"}


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("sent", "names"),
    [
        pytest.param(body(Pod=POD, Nodes=None, NodeNames=["n1", "n2"]), ["n1", "n2"], id="as kube-scheduler writes it"),
        pytest.param(body(pod=POD, nodeNames=["n1"], future=1), ["n1"], id="in camel case, with a key of the future"),
        pytest.param(body(Pod=POD, Nodes=None, NodeNames=None), [], id="no nodes at all are none"),
        pytest.param(body(Pod=POD), [], id="nor are missing ones"),
    ],
)
def test_keys_are_read_in_any_case_and_nodes_may_be_null(sent: bytes, names: list[str]) -> None:
    args = decode_filter_args(sent)
    assert list(args.node_names) == names
    assert list(decode_names(args.node_names_json)) == names
    assert (args.pod.metadata.uid, args.pod.metadata.labels) == ("u1", {GANG_LABEL: "b"})
    assert json.loads(args.pod.body) == POD


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        pytest.param(b"no json", "cannot be read", id="no JSON"),
        pytest.param(b'{"Pod": {"metadata": {"name": "\xff"}}}', "cannot be read", id="no UTF-8"),
        pytest.param(b'{"Pod": ' + b"[" * 100_000, "cannot be read", id="too deep"),
        pytest.param(b'{"Pod": {"metadata": {}, "spec": ' + b'{"a":' * 100_000, "cannot be read", id="a pod too deep"),
        pytest.param(body(NodeNames=["n1"]), "no Pod", id="no pod"),
        pytest.param(body(Pod="p", NodeNames=["n1"]), "cannot be read", id="a pod that is none"),
        pytest.param(b'{"Pod": ' + b"9" * 100_000 + b"}", "cannot be read", id="a number of 100,000 digits"),
        pytest.param(
            body(Pod={"metadata": {"labels": {GANG_LABEL: 1}}}), "cannot be read", id="a label that is no text"
        ),
        pytest.param(body(Pod=POD, NodeNames="n1"), "cannot be read", id="names that are no list"),
        pytest.param(body(Pod=POD, Nodes={"items": []}), NEEDS_NODE_CACHE, id="whole nodes"),
    ],
)
def test_what_cannot_be_filtered_is_refused_in_one_line(sent: bytes, words: str) -> None:
    with pytest.raises(BadRequestError, match=words) as caught:
        decode_filter_args(sent)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_binding_is_read_in_any_case() -> None:
    expected = BindRequest("ns", "p", "u1", "n1")
    assert decode_bind_args(json.dumps(BINDING).encode()) == expected
    assert decode_bind_args(json.dumps({key.lower(): value for key, value in BINDING.items()}).encode()) == expected


@pytest.mark.parametrize(("key", "value"), [*zip(BINDING, ["", None, 1, {}], strict=True), ("Node", "")])
def test_a_binding_without_a_name_is_refused(key: str, value: object) -> None:
    with pytest.raises(BadRequestError):
        decode_bind_args(json.dumps(BINDING | {key: value}).encode())


@pytest.mark.parametrize("sent", [b'{"PodName": ' + b"[" * 9_000, body(PodName=["x"] * 10_000)], ids=["deep", "many"])
def test_a_forged_binding_is_refused_in_one_line(sent: bytes) -> None:
    with pytest.raises(BadRequestError) as caught:
        decode_bind_args(sent)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_binding_without_a_key_is_refused() -> None:
    with pytest.raises(BadRequestError, match="no poduid"):
        decode_bind_args(body(PodName="p", PodNamespace="ns", Node="n1"))


def test_answers_are_written_as_the_protocol_names_them() -> None:
    answer = FilterResult(node_names=["n1"], unresolvable_nodes={"n2": "why"}, error="e")
    assert json.loads(encode_answer(answer)) == {
        "NodeNames": ["n1"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"n2": "why"},
        "Error": "e",
    }
    assert json.loads(encode_answer(BindResult("e"))) == {"Error": "e"}


def test_no_node_is_an_empty_list_and_not_null() -> None:
    assert json.loads(encode_answer(FilterResult()))["NodeNames"] == []
