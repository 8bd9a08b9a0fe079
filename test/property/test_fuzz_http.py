"""Fuzzing of what reads requests: HTTP on a connection of the extender and the probes, and the extender's JSON."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any, cast

from hypothesis import event, given
from hypothesis import strategies as st

from helpers.extenderparts import binding, other_pod, pod
from helpers.fuzzing import FUZZ, bounded, documents, mutations, outcome, pieces_of
from helpers.gangworld import NAMESPACE, GangWorld
from tfjob_controller.gangscheduler.extender.server import new_app
from tfjob_controller.gangscheduler.extender.verbs import ExtenderVerbs
from tfjob_controller.gangscheduler.extender.wire import (
    BadRequestError,
    BindResult,
    decode_bind_args,
    decode_filter_args,
    encode_answer,
)
from tfjob_controller.httpserver.app import App, Limits, Reply, Request
from tfjob_controller.httpserver.connection import HttpConnection, HttpConnections

LIMITS = Limits(connections=4, body_bytes=5000, replaces_busy=True, rate=None, head_bytes=2000, fields=10)


def in_namespace(each: dict[str, Any]) -> dict[str, Any]:
    return each | {"metadata": each["metadata"] | {"namespace": NAMESPACE}}


FILTER = {"Pod": in_namespace(pod("worker-0")), "Nodes": None, "NodeNames": ["n0", "n1"]}
OTHER_FILTER = {"Pod": other_pod("p"), "NodeNames": ["n0", "n1"]}
BIND = binding(in_namespace(pod("worker-0")), "n0")


def post(path: str, body: bytes, *fields: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"POST {path} HTTP/1.1", "Host: x", *fields))
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


REQUESTS = (
    post("/filter", json.dumps(FILTER).encode()),
    post("/bind", json.dumps(BIND).encode(), "Expect: 100-continue"),
    b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 3,
    b"HEAD / HTTP/1.0\r\n\r\n",
    b"POST /filter HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
)
HTTP_TOKENS = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b":",
        b"0\r\n\r\n",
        b"1\r\nx\r\n",
        b"ffffffffffffffff\r\n",
        b"-1",
        b"HTTP/2.0",
        b"%",
    ),
    *(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"A: b\r\n",
        b"Content-Length: 3\r\n",
        b"\x16\x03\x01",
    ),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: x\r\n",
        b"Connection: close\r\n",
        b"Connection: upgrade\r\n",
    ),
    *(
        b"Upgrade: h2c\r\n",
        b"Expect: 100-continue\r\n",
        b"\x00",
        b"\xff",
        b"/filter",
        b"?",
        b"#",
        b"http://[",
        b"CONNECT ",
    ),
)
# All that a client reads: interim responses, responses without a body, and at most one that ends the connection.
RESPONSES = re.compile(
    rb"(?:HTTP/1\.1 100 Continue\r\n\r\n"
    rb"|HTTP/1\.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n(?:connection: close\r\n)?\r\n)*"
    rb"(?:HTTP/1\.1 4(?:00|31) [A-Za-z ]+\r\ncontent-type: [^\r\n]+\r\ncontent-length: \d+\r\n"
    rb"connection: close\r\n\r\n[^\n]+\n)?"
)


@dataclass
class Wire:
    """A transport that keeps what is written."""

    written: bytearray = field(default_factory=bytearray)
    is_closed: bool = False
    is_paused: bool = False

    def get_extra_info(self, name: str) -> Any:
        return None

    def write(self, data: bytes) -> None:
        if not self.is_closed:
            self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


def received(app: App, pieces: list[bytes]) -> Wire:
    async def run() -> Wire:
        wire = Wire()
        connection = HttpConnection(HttpConnections(app, LIMITS), "10.0.0.1")
        connection.connection_made(cast("asyncio.BaseTransport", wire))
        for piece in pieces:
            unread = piece
            while unread and not wire.is_closed:
                buffer = connection.get_buffer(-1)
                read, unread = unread[: len(buffer)], unread[len(buffer) :]
                buffer[: len(read)] = read
                connection.buffer_updated(len(read))
                while wire.is_paused and not wire.is_closed:
                    await asyncio.sleep(0)
        connection.connection_lost(None)
        return wire

    return asyncio.run(run())


streams = mutations(REQUESTS, HTTP_TOKENS)


@FUZZ
@given(streams.flatmap(pieces_of))
def test_any_bytes_get_responses_of_http_and_pass_on_only_what_the_limits_allow(pieces: list[bytes]) -> None:
    requests: list[Request] = []

    def app(request: Request, reply: Reply) -> None:
        requests.append(request)
        reply(200, b"", b"text/plain")

    size = sum(map(len, pieces))
    with bounded(size):
        wire = received(app, pieces)
    event(f"requests: {min(len(requests), 3)}, closed: {wire.is_closed}")
    assert RESPONSES.fullmatch(bytes(wire.written))
    assert wire.written.count(b"HTTP/1.1 200 ") == len(requests)
    for request in requests:
        assert len(request.body) <= LIMITS.body_bytes
        assert len(request.target) <= LIMITS.head_bytes
        assert not (request.is_too_long and request.body)


@FUZZ
@given(streams.flatmap(lambda data: st.tuples(st.just(data), pieces_of(data))))
def test_requests_do_not_depend_on_the_pieces_in_which_their_bytes_arrive(case: tuple[bytes, list[bytes]]) -> None:
    whole, pieces = case
    found: list[list[tuple[bytes, bytes, bytes]]] = []
    for each in ([whole], pieces):
        requests: list[tuple[bytes, bytes, bytes]] = []

        def app(request: Request, reply: Reply, requests: list[tuple[bytes, bytes, bytes]] = requests) -> None:
            requests.append((request.method, request.target, request.body))
            reply(200, b"", b"text/plain")

        wire = received(app, each)
        if b" 431 " in wire.written:
            event("refused for its size")
            return
        found.append(requests)
    assert found[0] == found[1]


def new_verbs() -> ExtenderVerbs:
    world = GangWorld()
    world.put_node("n0", 4)
    world.add_gang("gang", worker=1)
    world.run()
    world.create_pods("gang")
    world.stop_writing()
    return ExtenderVerbs(world.placements, world.permit, world.state)


@FUZZ
@given(streams.flatmap(pieces_of))
def test_the_extender_answers_any_bytes_without_an_internal_error(pieces: list[bytes]) -> None:
    with bounded(sum(map(len, pieces))):
        wire = received(new_app(new_verbs(), "", lambda verb, is_error, seconds: None), pieces)
    assert b" 500 " not in wire.written
    assert b"internal error" not in wire.written


@FUZZ
@given(documents([FILTER, OTHER_FILTER, {"Pod": other_pod("p"), "Nodes": {"items": []}}]))
def test_a_filter_request_is_answered_or_refused_in_one_line(body: bytes) -> None:
    with bounded(len(body)):
        args = outcome(lambda: decode_filter_args(body), BadRequestError)
        if isinstance(args, BadRequestError):
            event("refused")
            assert "\n" not in str(args)
            assert json.loads(encode_answer(BindResult(str(args)))) == {"Error": str(args)}
            return
        answer = json.loads(encode_answer(new_verbs().filter(args)))
    assert set(answer["NodeNames"]) <= set(args.node_names)
    assert set(answer["FailedAndUnresolvableNodes"]) <= set(args.node_names)


@FUZZ
@given(documents([BIND]))
def test_a_bind_request_is_read_or_refused_in_one_line(body: bytes) -> None:
    with bounded(len(body)):
        found = outcome(lambda: decode_bind_args(body), BadRequestError)
    if isinstance(found, BadRequestError):
        assert "\n" not in str(found)
    else:
        assert all((found.namespace, found.name, found.uid, found.node))
