"""Events that a tenant writes about a job: of any size, with any text, which the API server accepts by core/v1."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from helpers.apiconfig import config_for
from helpers.dashboardpeople import job_body
from helpers.httpserver import Answer, HttpServer, Request
from tfjob_controller.client.diagnostics.collection import MAX_KEPT_BYTES, Diagnostics, collect_diagnostics
from tfjob_controller.client.diagnostics.description import event_rows
from tfjob_controller.client.diagnostics.timeline import fold_entries, timeline
from tfjob_controller.client.kinds import snapshot_decoder
from tfjob_controller.client.reader import MAX_EVENT_CHARACTERS, MAX_READ_BYTES, Reader
from tfjob_controller.dashboard.gantt import gantt
from tfjob_controller.dashboard.tokens import MAX_RESPONSE_BYTES
from tfjob_controller.kinds.tfjob.clientkind import CLIENT_KIND as TFJOB
from tfjob_controller.kube.http.transport import Transport

HARM = "<script>\x1b[2J\u202e"


def an_event(number: int, size: int) -> bytes:
    """Of about `size` bytes, in each field that its author can fill."""
    text = (HARM * size)[: size // 20]
    fields: dict[str, dict[str, str]] = {f"f:{index}": {} for index in range(size // 25)}
    meta = {
        "name": f"e{number:06}",
        "namespace": "ns",
        "labels": {"a": text},
        "annotations": {"kubeflow.org/reconcile-id": text},
        "managedFields": [{"manager": "m", "fieldsV1": fields}],
    }
    about = {"kind": "TFJob", "name": "train", "namespace": "ns", "uid": "uid-train"}
    words = {"message": text, "reason": text, "type": text, "source": {"component": text}}
    event = {"metadata": meta, "involvedObject": about, "firstTimestamp": "2026-01-01T00:00:00Z", **words}
    return json.dumps(event, ensure_ascii=False).encode()


class Events:
    """Serves a namespace whose events are these, in pages. A page is sent as it is asked for, of any size."""

    def __init__(self, events: list[bytes]) -> None:
        self.events = events
        self.limits: list[int] = []

    def respond(self, request: Request) -> Answer:
        if not request.path.endswith("/events"):
            return Answer(body=b'{"metadata": {"name": "ns", "uid": "u"}, "items": []}')
        self.limits.append(int(request.query["limit"]))
        begin = int(request.query.get("continue", "0"))
        return Answer(chunks=self._page(begin, begin + self.limits[-1]))

    def _page(self, begin: int, end: int) -> Iterator[bytes]:
        token = str(end) if end < len(self.events) else ""
        yield b'{"metadata": {"resourceVersion": "1", "continue": "%b"}, "items": [' % token.encode()
        for place, event in enumerate(self.events[begin:end]):
            yield (b"," if place else b"") + event
        yield b"]}"


def transport_of(server: HttpServer) -> Transport:
    """As the dashboard has one."""
    return Transport(config_for(server.url), qps=0, max_response_bytes=MAX_RESPONSE_BYTES)


def diagnostics(transport: Transport) -> Diagnostics:
    return collect_diagnostics(transport, snapshot_decoder(TFJOB)(job_body("ns", "train")))


def test_events_of_any_size_take_bounded_memory() -> None:
    events = Events([an_event(number, 1_200_000) for number in range(40)])
    with HttpServer(events.respond) as server:
        transport = transport_of(server)
        tracemalloc.start()
        try:
            case = diagnostics(transport)
            rows = event_rows("train", Reader(transport, "ns", TFJOB).events("uid-train"))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            transport.close()
    assert peak < 3 * MAX_RESPONSE_BYTES
    assert events.limits[:3] == [500, 50, 5]
    read = MAX_READ_BYTES // len(events.events[0])
    assert (len(case.events), len(rows)) == (read, read)
    assert case.unread == [f"events: only the first {read} were read"]


def test_many_events_are_read_up_to_the_bytes_that_are_kept() -> None:
    events = Events([an_event(number, 20_000) for number in range(5000)])
    with HttpServer(events.respond) as server:
        transport = transport_of(server)
        case = diagnostics(transport)
        transport.close()
    assert sum(len(json.dumps(event, ensure_ascii=False).encode()) for event in case.events) <= 1.1 * MAX_KEPT_BYTES
    assert 100 < len(case.events) < 5000


@pytest.mark.parametrize("size", [1000, 1_400_000])
def test_each_text_of_an_event_is_shown_in_few_characters(size: int) -> None:
    events = Events([an_event(number, size) for number in range(3)])
    with HttpServer(events.respond) as server:
        transport = transport_of(server)
        case = diagnostics(transport)
        (row, *_) = event_rows("train", Reader(transport, "ns", TFJOB).events("uid-train"))
        transport.close()
    (entry,) = fold_entries(timeline(case))[-1:]
    assert entry.count == 3
    assert len(entry.text) + len(entry.source) + len(entry.reconcile_id) < 3000
    assert max(len(text) for text in (row.type, row.reason, row.note)) <= MAX_EVENT_CHARACTERS
    gantt(case, datetime.now(UTC))
