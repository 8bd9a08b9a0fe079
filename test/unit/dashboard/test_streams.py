"""Streams that a person's newer one displaces, at every moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from typing import Any

import pytest

from tfjob_controller.dashboard.shares import Shares
from tfjob_controller.dashboard.streams import EventStream

Message = MutableMapping[str, Any]


async def _parts() -> AsyncGenerator[bytes, None]:
    yield b"data: 1\n\n"


@pytest.mark.anyio
async def test_a_stream_that_is_displaced_as_it_ends_sends_nothing_after_its_end() -> None:
    sent: list[Message] = []
    places: Shares[asyncio.Task[Any]] = Shares(1, 10)
    newer = asyncio.ensure_future(asyncio.sleep(0))

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            for displaced in places.take("ann", newer):
                displaced.cancel()

    await asyncio.ensure_future(EventStream(_parts(), places, "ann")({"type": "http", "asgi": {}}, receive, send))
    assert [message.get("more_body") for message in sent] == [None, True, False]
