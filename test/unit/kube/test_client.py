"""The rules of kube/client.py, with a requester that is told its answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from helpers.scripted import ScriptedRequester
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.flowcontrol import Priority
from tfjob_controller.kube.meta import ObjectMeta, Resource
from tfjob_controller.kube.requester import JSON, MERGE_PATCH


class Thing(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


THINGS = Resource("g.test", "v1", "things", "Thing", decoder_for(Thing))
ONE = "/apis/g.test/v1/namespaces/d/things/a"
ALL = "/apis/g.test/v1/namespaces/d/things"


def script(*answers: Any) -> ScriptedRequester:
    """Gives one answer after the other."""
    return ScriptedRequester(
        *(answer if isinstance(answer, (bytes, ApiError)) else json.dumps(answer).encode() for answer in answers)
    )


def thing(name: str = "a", **metadata: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "d", "resourceVersion": "7", **metadata}}


def page(*names: str, way_on: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "9", "continue": way_on}, "items": [thing(name) for name in names]}


def client(requester: ScriptedRequester, **options: Any) -> ResourceClient[Thing]:
    return ResourceClient(requester, THINGS, **options)


Call = Callable[[ResourceClient[Thing]], object]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        pytest.param(lambda c: c.get("d", "a"), ("GET", ONE, {}, JSON), id="get"),
        pytest.param(lambda c: c.create("d", {"x": 1}), ("POST", ALL, {"x": 1}, JSON), id="create"),
        pytest.param(
            lambda c: c.create("d", Thing(ObjectMeta(name="a"))),
            ("POST", ALL, {"metadata": {"name": "a"}}, JSON),
            id="create a Struct",
        ),
        pytest.param(lambda c: c.update("d", "a", {"x": 1}), ("PUT", ONE, {"x": 1}, JSON), id="update"),
        pytest.param(
            lambda c: c.update("d", "a", {}, "status"), ("PUT", ONE + "/status", {}, JSON), id="update a subresource"
        ),
        pytest.param(lambda c: c.patch("d", "a", {"x": 1}), ("PATCH", ONE, {"x": 1}, MERGE_PATCH), id="patch"),
        pytest.param(
            lambda c: c.patch("d", "a", b"{}", subresource="status"),
            ("PATCH", ONE + "/status", {}, MERGE_PATCH),
            id="patch a subresource",
        ),
    ],
)
def test_each_call_is_one_request_and_gives_the_decoded_answer(call: Call, expected: tuple[object, ...]) -> None:
    requester = script(thing())
    assert call(client(requester)) == Thing(ObjectMeta(name="a", namespace="d", resource_version="7"))
    (sent,) = requester.sent
    assert (sent.method, sent.path, sent.body, sent.content_type) == expected
    assert (sent.query, sent.retry) == ({}, None)


def test_a_strict_create_asks_the_server_to_refuse_unknown_fields() -> None:
    requester = script(thing())
    client(requester).create("d", {"x": 1}, strict=True)
    assert requester.sent[0].query == {"fieldValidation": "Strict"}


def test_priority_and_time_are_those_of_the_client() -> None:
    requester = script(thing(), {}, page())
    leases = client(requester, priority=Priority.LEASE, timeout_seconds=5.0, retry=False)
    leases.update("d", "a", {})
    leases.delete("d", "a", uid="u")
    leases.list("d")
    assert [(sent.priority, sent.timeout_seconds, sent.retry) for sent in requester.sent] == (
        [(Priority.LEASE, 5.0, False)] * 3
    )


class TestDelete:
    @pytest.mark.parametrize(
        ("options", "body", "retry"),
        [
            pytest.param({}, {"propagationPolicy": "Background"}, None, id="by name"),
            pytest.param(
                {"uid": "u"},
                {"propagationPolicy": "Background", "preconditions": {"uid": "u"}},
                True,
                id="by uid, which can be repeated",
            ),
            pytest.param(
                {"uid": "u", "resource_version": "7"},
                {"propagationPolicy": "Background", "preconditions": {"uid": "u", "resourceVersion": "7"}},
                True,
                id="as it was seen",
            ),
            pytest.param(
                {"propagation": "Foreground"},
                {"propagationPolicy": "Foreground"},
                None,
                id="in the foreground",
            ),
        ],
    )
    def test_the_delete_request_has_the_given_options(
        self, options: dict[str, Any], body: dict[str, Any], retry: bool | None
    ) -> None:
        requester = script({"kind": "Status", "status": "Success"})
        client(requester).delete("d", "a", **options)
        (sent,) = requester.sent
        assert (sent.method, sent.path, sent.body, sent.retry) == ("DELETE", ONE, body, retry)

    @pytest.mark.parametrize(
        ("answer", "is_returned"),
        [
            pytest.param({"kind": "Status", "metadata": {}, "status": "Success"}, False, id="it is gone"),
            pytest.param(thing(), False, id="it is gone, and this was its last state"),
            pytest.param(thing(deletionTimestamp="2026-01-01T00:00:00Z"), True, id="it is terminating"),
        ],
    )
    def test_an_object_is_returned_while_it_is_terminating(self, answer: dict[str, Any], is_returned: bool) -> None:
        deleted = client(script(answer)).delete("d", "a", propagation="Foreground")
        assert (deleted is not None) == is_returned
        assert deleted is None or deleted.metadata.deletion_timestamp == "2026-01-01T00:00:00Z"


class TestLists:
    def test_all_pages_are_one_list(self) -> None:
        requester = script(page("a", "b", way_on="next"), page("c"))
        assert [one.metadata.name for one in client(requester).list("d", "l=1")] == ["a", "b", "c"]
        assert [sent.query for sent in requester.sent] == [
            {"labelSelector": "l=1", "limit": "500"},
            {"labelSelector": "l=1", "limit": "500", "continue": "next"},
        ]

    def test_of_all_namespaces(self) -> None:
        requester = script(page())
        assert client(requester).list() == []
        assert requester.sent[0].path == "/apis/g.test/v1/things"

    def test_a_version_is_said_on_the_first_page_only(self) -> None:
        requester = script(page("a", way_on="next"), page("b"))
        assert [p.resource_version for p in client(requester).pages("d", resource_version="0", page_size=1)] == [
            "9",
            "9",
        ]
        assert [sent.query for sent in requester.sent] == [
            {"limit": "1", "resourceVersion": "0"},
            {"limit": "1", "continue": "next"},
        ]

    def test_a_version_that_is_gone_is_the_callers_to_handle(self) -> None:
        requester = script(page("a", way_on="next"), ApiError(410, "Expired", "too old"))
        with pytest.raises(ApiError, match="too old"):
            client(requester).list("d")


class TestStrangeAnswers:
    LOGIN = b"<html>log in</html>"

    @pytest.mark.parametrize(
        ("call", "unknown"),
        [
            pytest.param(lambda c: c.get("d", "a"), False, id="get"),
            pytest.param(lambda c: c.list("d"), False, id="list"),
            pytest.param(lambda c: c.create("d", {}), True, id="create"),
        ],
    )
    def test_what_is_no_object_is_no_answer(self, call: Call, unknown: bool) -> None:
        with pytest.raises(ApiError) as caught:
            call(client(script(self.LOGIN)))
        assert (caught.value.status, caught.value.reason) == (NO_RESPONSE, "InvalidAnswer")
        assert caught.value.outcome_unknown is unknown
        assert caught.value.is_retryable

    def test_refusals_pass_unchanged(self) -> None:
        refusal = ApiError(409, "AlreadyExists", "it exists")
        with pytest.raises(ApiError) as caught:
            client(script(refusal)).create("d", {})
        assert caught.value is refusal
