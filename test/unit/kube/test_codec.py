"""The rules of kube/codec.py. Bodies are as kube-apiserver 1.36 sends them."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_controller.kube import codec
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import ObjectMeta

MANAGED = [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}}]


class Thing(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    payload: msgspec.Raw = msgspec.Raw(b"null")


decode_thing = codec.decoder_for(Thing)


def thing(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "managedFields": MANAGED, "annotations": {"a": "b"}}, **fields}


def a_list(*items: object, **metadata: object) -> bytes:
    return json.dumps({"kind": "ThingList", "metadata": {"resourceVersion": "7", **metadata}, "items": items}).encode()


def event(kind: str, obj: object) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode()


def test_only_fields_of_the_type_are_kept() -> None:
    decoded = decode_thing(json.dumps(thing("a", spec={"more": 1})).encode())
    assert decoded.metadata == ObjectMeta(name="a")


def test_what_does_not_fit_is_a_decode_error() -> None:
    with pytest.raises(msgspec.DecodeError, match="metadata"):
        decode_thing(b'{"metadata": {"name": 1}}')


class TestLists:
    def test_a_page_has_its_version_the_way_to_the_next_and_its_items(self) -> None:
        page = codec.decode_list(a_list(thing("a"), thing("b"), **{"continue": "next", "remainingItemCount": 3}))
        assert (page.resource_version, page.continue_) == ("7", "next")
        assert [decode_thing(item).metadata.name for item in page.items] == ["a", "b"]

    def test_a_list_of_nothing_may_come_as_null(self) -> None:
        assert codec.decode_list(b'{"metadata": {"resourceVersion": "7"}, "items": null}').items == []

    def test_one_object_that_does_not_fit_costs_only_itself(self) -> None:
        page = codec.decode_list(a_list(thing("a"), {"metadata": 1}, thing("c")))
        assert decode_thing(page.items[0]).metadata.name == "a"
        assert decode_thing(page.items[2]).metadata.name == "c"
        with pytest.raises(msgspec.DecodeError):
            decode_thing(page.items[1])

    def test_a_decoded_object_does_not_pin_the_list_that_it_came_in(self) -> None:
        body = a_list(*[thing(f"n{n}", payload={"x": "y" * 100}) for n in range(100)])
        references = sys.getrefcount(body)
        page = codec.decode_list(body)
        kept = decode_thing(page.items[50])
        assert sys.getrefcount(body) > references, "the page does"
        del page
        assert sys.getrefcount(body) == references
        assert bytes(kept.payload).startswith(b'{"x"')


class TestWatchEvents:
    def test_the_fields_may_come_in_any_order(self) -> None:
        decoded = codec.decode_watch_event(b'{"object": {"metadata": {"name": "a"}}, "type": "ADDED"}')
        assert decode_thing(decoded.object).metadata.name == "a"

    def test_an_error_event_that_is_no_status_is_the_servers_fault(self) -> None:
        with pytest.raises(ApiError) as caught:
            codec.decode_watch_event(event(codec.ERROR, {"oops": 1}))
        assert caught.value.is_retryable


@pytest.mark.parametrize(
    ("annotations", "is_end"),
    [
        pytest.param({"k8s.io/initial-events-end": "true"}, True, id="the bookmark after the initial events"),
        pytest.param({"other": "true"}, False, id="other annotations"),
        pytest.param(None, False, id="none"),
    ],
)
def test_a_bookmark_advances_the_version_of_the_watch(annotations: dict[str, str] | None, is_end: bool) -> None:
    metadata = {"resourceVersion": "9", "creationTimestamp": None} | (
        {"annotations": annotations} if annotations else {}
    )
    line = event(codec.BOOKMARK, {"kind": "Pod", "metadata": metadata, "spec": {"containers": None}})
    assert codec.decode_bookmark(codec.decode_watch_event(line).object) == codec.Bookmark("9", is_end)


class TestErrors:
    def test_a_status_has_its_reason_message_and_causes(self) -> None:
        body = {
            "kind": "Status",
            "message": 'Service "A_" is invalid',
            "reason": "Invalid",
            "code": 422,
            "details": {
                "name": "A_",
                "causes": [{"reason": "FieldValueInvalid", "message": "bad name", "field": "metadata.name"}],
                "retryAfterSeconds": 3,
            },
        }
        error = codec.api_error(422, json.dumps(body).encode())
        assert (error.status, error.reason, error.message) == (422, "Invalid", 'Service "A_" is invalid')
        assert (error.causes, error.cause_reasons) == ((("metadata.name", "bad name"),), ("FieldValueInvalid",))
        assert error.retry_after_seconds == 3

    def test_the_header_goes_before_the_details(self) -> None:
        body = b'{"kind": "Status", "code": 429, "details": {"retryAfterSeconds": 3}}'
        assert codec.api_error(429, body, retry_after_seconds=0.0).retry_after_seconds == 0.0

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            pytest.param(b"<html>\n <b>Bad gateway</b>\n</html>", "<html> <b>Bad gateway</b> </html>", id="html"),
            pytest.param(b"x" * 10000, "x" * 300, id="long text is cut"),
            pytest.param(b"\xff\xfe", "\ufffd\ufffd", id="no text at all"),
            pytest.param(b"", "HTTP 502 without a message", id="nothing"),
            pytest.param(b'{"error": "x"}', '{"error": "x"}', id="json that is no Status"),
        ],
    )
    def test_what_a_proxy_says_is_the_message(self, body: bytes, message: str) -> None:
        error = codec.api_error(502, body)
        assert (error.status, error.reason, error.message) == (502, "", message)

    @given(body=st.binary(max_size=200))
    def test_no_body_is_too_strange(self, body: bytes) -> None:
        assert codec.api_error(500, body).status == 500


class TestEncoding:
    def test_structs_leave_out_defaults_and_use_wire_names(self) -> None:
        assert codec.encode(Thing(ObjectMeta(name="a", resource_version="1"))) == (
            b'{"metadata":{"name":"a","resourceVersion":"1"},"payload":null}'
        )

    def test_mappings_are_taken_as_they_are_and_bytes_as_json(self) -> None:
        assert codec.encode({"a": [1, None, "ü"]}) == '{"a":[1,null,"ü"]}'.encode()
        assert codec.encode(b"raw") == b"raw"


def test_bytes_that_are_not_utf_8_are_refused_as_all_other_invalid_json() -> None:
    with pytest.raises(msgspec.DecodeError, match="not UTF-8"):
        codec.decode_list(b'{"metadata": {"resourceVersion": "\xff"}}')
    with pytest.raises(msgspec.DecodeError, match="not UTF-8"):
        codec.decode_bookmark(b'{"metadata": {"resourceVersion": "\xff"}}')
    assert "\ufffd" in str(codec.api_error(502, b'{"kind": "\xff"}'))
