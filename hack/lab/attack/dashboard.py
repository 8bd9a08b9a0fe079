"""The dashboard under attack: a person of the other tenant who uses it, and attackers who have tokens of the cluster.

Attackers log in with tokens that nobody knows, and with many tokens of one account; they open event streams and logs
that they do not read, and pages of jobs that take long to show, all from the addresses of four pods. The person logs in
once, and must neither be logged out nor wait. Threads: one for each kind of attack, and one for the person.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

import urllib3
from urllib3.response import BaseHTTPResponse

from lab.attack.connections import PODS
from lab.attack.helpers import Attackers
from lab.attack.stage import HOSTILE
from lab.background import Background

STREAMS = 800
_STEP_SECONDS, _REFUSED_SECONDS, _PAGE_SECONDS = 0.05, 0.02, 0.2
_VISIT_SECONDS = 2.0
_TIMEOUT_SECONDS = 30.0
_LOGIN, _JOBS = "/login", "/jobs"
_FEEDS = f"/events/jobs?namespace={HOSTILE}"
# The names of lab.attack.tenant.
_BOMB, _SMALL = f"{HOSTILE}/tfjob/bomb-0", f"{HOSTILE}/tfjob/job-0"
_CLONED = f"/new?from=tfjob/{HOSTILE}/bomb-0"

# What each kind of attack is counted as.
KINDS = ("refused_login", "login", "stream", "page")


def browser(address: str = "127.0.0.1") -> urllib3.PoolManager:
    """Returns a client of this address that trusts every certificate, because ours are self-signed."""
    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return urllib3.PoolManager(
        cert_reqs="CERT_NONE", retries=False, timeout=_TIMEOUT_SECONDS, maxsize=1, source_address=(address, 0)
    )


def log_in(client: urllib3.PoolManager, url: str, token: str) -> str:
    """Returns the cookie of a new session; empty if there is none."""
    answer = client.request("POST", f"{url}{_LOGIN}", fields={"token": token}, encode_multipart=False, redirect=False)
    return answer.headers.get("Set-Cookie", "").partition(";")[0] if answer.status == 303 else ""


class Person(Background):
    """Somebody of the other tenant with the dashboard open."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(self._visit)
        self._visits: list[float] = []
        self._problems: Counter[str] = Counter()
        self._url, self._token = url, token

    def figures(self) -> dict[str, Any]:
        return {
            "visits": len(self._visits),
            "visit_max_seconds": round(max(self._visits, default=0.0), 1),
            "problems": dict(self._problems),
        }

    def broken(self, visit_seconds: float) -> list[str]:
        """Returns the limits that are violated."""
        bounds = {
            "showed the person no page": not self._visits,
            f"took longer than {visit_seconds:g} s for a page": max(self._visits, default=0.0) > visit_seconds,
            **dict.fromkeys(sorted(self._problems), True),
        }
        return [f"dashboard {text}" for text, is_broken in bounds.items() if is_broken]

    def _visit(self) -> None:
        client = browser()
        cookie = log_in(client, self._url, self._token)
        for _ in self.ticks(_VISIT_SECONDS):
            begin = time.monotonic()
            try:
                headers = {"Cookie": cookie}
                status = client.request("GET", f"{self._url}{_JOBS}", headers=headers, redirect=False).status
            except urllib3.exceptions.HTTPError as error:
                self._problems[f"did not answer: {type(error).__name__}"] += 1
                continue
            self._visits.append(time.monotonic() - begin)
            if status != 200:
                self._problems[f"answered with {status}"] += 1


def attack(url: str, tokens: Sequence[str], streams: int, over: Event, results: Connection) -> None:
    """Attacks until `over`. Runs in a separate process."""
    visitors = _Visitors(url, tokens, streams, over)
    visitors.run(visitors.kinds(), results)


class _Visitors(Attackers):
    def __init__(self, url: str, tokens: Sequence[str], streams: int, over: Event) -> None:
        super().__init__(over)
        self._url, self._tokens = url, tokens
        self._cookie = ""
        self._streams: deque[BaseHTTPResponse] = deque(maxlen=streams)

    def kinds(self) -> list[Iterator[float]]:
        kinds = (self._refused_logins, self._logins, self._open_streams, self._pages, self._pages)
        return [kind(browser(address)) for kind, address in zip(kinds, itertools.cycle(PODS), strict=False)]

    def _refused_logins(self, client: urllib3.PoolManager) -> Iterator[float]:
        while True:
            with self.counted("refused_login"):
                log_in(client, self._url, secrets.token_urlsafe(32))
            yield _REFUSED_SECONDS

    def _logins(self, client: urllib3.PoolManager) -> Iterator[float]:
        for token in itertools.cycle(self._tokens):
            with self.counted("login"):
                self._cookie = log_in(client, self._url, token) or self._cookie
            yield _STEP_SECONDS

    def _open_streams(self, _: urllib3.PoolManager) -> Iterator[float]:
        """Opens streams that nobody reads; the oldest is closed for a new one."""
        paths = (_FEEDS, f"/events/jobs/{_SMALL}", f"/logs/{_SMALL}")
        for path, address in zip(itertools.cycle(paths), itertools.cycle(PODS), strict=False):
            with self.counted("stream"):
                self._streams.append(self._get(browser(address), path, preload_content=False))
            yield _STEP_SECONDS

    def _pages(self, client: urllib3.PoolManager) -> Iterator[float]:
        for path in itertools.cycle((f"/jobs/{_BOMB}", _CLONED)):
            with self.counted("page"):
                self._get(client, path)
            yield _PAGE_SECONDS

    def _get(self, client: urllib3.PoolManager, path: str, **options: Any) -> BaseHTTPResponse:
        headers = {"Cookie": self._cookie}
        return client.request("GET", f"{self._url}{path}", headers=headers, redirect=False, **options)
