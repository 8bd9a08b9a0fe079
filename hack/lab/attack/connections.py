"""Attacks on ports that a pod can reach: connections that never complete a request.

Each target has `COUNT` connections at any time, spread over the addresses of four pods and over these kinds: heads
without an end, bodies of single bytes with pauses, bodies in chunks of two bytes, trailers without an end, valid
requests without a break, no data, and TLS without a certificate. Connections that the server closes are opened again
after a second, and silent ones after five. The extender's port also has silent connections, more than a process may
usually have files. One thread, with asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event

COUNT = 100
SILENT = 1100
PODS = ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")
_AGAIN_SECONDS = 1.0
_SILENT_AGAIN_SECONDS = 5.0
_STEP_SECONDS = 0.05
_BYTE_SECONDS = 0.5
_MOST_SECONDS = 60.0
_POLL_SECONDS = 0.2
_FILES = 20_000
_GET, _POST = b"GET /metrics HTTP/1.1\r\n", b"POST /filter HTTP/1.1\r\n"
_CHUNKED = _POST + b"Host: x\r\nTransfer-Encoding: chunked\r\n\r\n"
_VALID = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
_SIZED = _POST + b"Host: x\r\nContent-Length: 4000000\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Target:
    port: int
    is_tls: bool = False


Kind = Callable[[asyncio.StreamWriter], Awaitable[None]]


def _sender(start: bytes, endless: bytes, pause_seconds: float) -> Kind:
    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(endless)
            await writer.drain()
            await asyncio.sleep(pause_seconds)

    return send


async def _silence(_: asyncio.StreamWriter) -> None:
    await asyncio.sleep(_MOST_SECONDS)


KINDS: Sequence[Kind] = (
    _sender(_GET, b"x: " + b"y" * 8000 + b"\r\n", _STEP_SECONDS),
    _sender(_GET, b"a: b\r\n" * 10, _STEP_SECONDS),
    _sender(_SIZED, b"x", _BYTE_SECONDS),
    _sender(_CHUNKED, b"2\r\nxx\r\n" * 1000, _STEP_SECONDS),
    _sender(_CHUNKED + b"0\r\n", b"x: y\r\n" * 100, _STEP_SECONDS),
    _sender(_GET, b"\r\n", _STEP_SECONDS),
    _silence,
    _sender(b"", _VALID * 1000, 0.0),
)


def attack(targets: Sequence[Target], count: int, silent: int, over: Event, results: Connection) -> None:
    """Attacks until `over`; then sends the number of opened connections. Runs in a separate process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, most) if most > 0 else _FILES, most))
    opened: Counter[str] = Counter()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_attack(targets, count, silent, over, opened))
    results.send(dict(opened))


async def _attack(targets: Sequence[Target], count: int, silent: int, over: Event, opened: Counter[str]) -> None:
    pods = itertools.cycle(PODS)
    tasks = []
    for target in targets:
        kinds = itertools.islice(itertools.cycle(KINDS), count)
        tasks += [asyncio.create_task(_keep(target, kind, next(pods), opened)) for kind in kinds]
        if target.is_tls:
            tasks += [asyncio.create_task(_keep(target, _silence, next(pods), opened)) for _ in range(silent)]
            tls = (KINDS[0], KINDS[3], KINDS[6], KINDS[7])
            few = max(1, count // 10)
            tasks += [asyncio.create_task(_keep(target, kind, next(pods), opened, True)) for kind in tls * few]
    while not over.is_set():
        await asyncio.sleep(_POLL_SECONDS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _keep(target: Target, kind: Kind, pod: str, opened: Counter[str], speaks_tls: bool = False) -> None:
    while True:
        with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            context = _trusting() if speaks_tls else None
            reader, writer = await asyncio.open_connection("127.0.0.1", target.port, local_addr=(pod, 0), ssl=context)
            opened["connections"] += 1
            await _until_closed(reader, writer, kind)
        await asyncio.sleep(_SILENT_AGAIN_SECONDS if kind is _silence else _AGAIN_SECONDS)


async def _until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: Kind) -> None:
    sending = asyncio.ensure_future(kind(writer))
    reading = asyncio.ensure_future(_read(reader))
    try:
        await asyncio.wait((sending, reading), timeout=_MOST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, reading):
            task.cancel()
        await asyncio.gather(sending, reading, return_exceptions=True)
        writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
