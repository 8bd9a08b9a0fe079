"""Event streams and other long requests hold one of a person's places: the newest displaces that person's oldest.

It is displaced by cancelling its task, because it may wait for a browser that neither reads nor sends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any, TypeVar

from starlette.responses import PlainTextResponse, StreamingResponse

from tfjob_controller.dashboard.shares import Shares

Message = MutableMapping[str, Any]
_HEADERS = {"X-Accel-Buffering": "no"}
# For the end of a displaced stream to reach its browser.
_END_SECONDS = 1.0

Places = Shares["asyncio.Task[Any]"]
ResultT = TypeVar("ResultT")


async def hold(places: Places, person: str, work: Coroutine[Any, Any, ResultT]) -> asyncio.Task[ResultT]:
    """Does the work in the person's newest place. The task has ended; it was cancelled if a newer one displaced it."""
    task = asyncio.ensure_future(work)
    for displaced in places.take(person, task):
        displaced.cancel()
    try:
        await asyncio.wait([task])
    finally:
        places.release(task)
        task.cancel()
        await asyncio.wait([task])
    return task


class EventStream:
    """An ASGI response of server-sent events, or of another type. `parts` are closed at its end, however it ends."""

    def __init__(
        self,
        parts: AsyncGenerator[bytes, None],
        places: Places,
        person: str,
        media_type: str = "text/event-stream",
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._parts = parts
        self._places = places
        self._person = person
        self._media_type = media_type
        self._headers = {**_HEADERS, **headers}
        self._has_started = self._is_complete = False

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        async def send_noted(message: Message) -> None:
            self._has_started = True
            await send(message)
            self._is_complete = message["type"] == "http.response.body" and not message.get("more_body")

        response = StreamingResponse(self._parts, media_type=self._media_type, headers=self._headers)
        try:
            writing = await hold(self._places, self._person, response(scope, receive, send_noted))
        finally:
            await self._parts.aclose()
        if not writing.cancelled():
            writing.result()
        elif self._is_complete:
            return
        elif self._has_started:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    send({"type": "http.response.body", "body": b"", "more_body": False}), _END_SECONDS
                )
        else:
            refusal = PlainTextResponse("A newer window of the same user has replaced this stream.\n", 429)
            await refusal(scope, receive, send)
