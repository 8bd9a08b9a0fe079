"""Known vulnerabilities of the locked packages, from the OSV service, which gets one request.

If it cannot be reached, a line reports it and nothing fails: a build must not depend on a foreign server.
Source: https://google.github.io/osv.dev/post-v1-querybatch/
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec
import urllib3

from supplychain.lock import Pin

# Another server with the same API, such as a mirror; empty disables the check.
URL_VARIABLE = "ADVISORIES_URL"
_URL = "https://api.osv.dev/v1/querybatch"
_TIMEOUT = urllib3.Timeout(connect=3.0, read=10.0)

# An advisory that does not concern us, by its id, with the reason and what ends it.
ACCEPTED: dict[str, str] = {}


class _Vulnerability(msgspec.Struct):
    id: str


class _Result(msgspec.Struct):
    vulns: list[_Vulnerability] = []


class _Answer(msgspec.Struct):
    results: list[_Result]


class NotReachedError(Exception):
    """The service sent no valid response; the message is one line."""


def ask(pins: Sequence[Pin], url: str | None = None) -> list[str]:
    """Returns a line for each advisory that is not accepted. Raises NotReachedError."""
    asked = sorted({(pin.name, pin.version) for pin in pins})
    given = os.environ.get(URL_VARIABLE, _URL) if url is None else url
    if not given:
        raise NotReachedError(f"{URL_VARIABLE} is empty")
    answer = _answer(given, asked)
    if len(answer.results) != len(asked):
        raise NotReachedError(f"{len(asked)} packages asked for, {len(answer.results)} answered")
    return [
        f"{name}=={version}: {advisory.id}: lock a version without it (make lock), or accept it with a reason"
        for (name, version), result in zip(asked, answer.results, strict=True)
        for advisory in result.vulns
        if advisory.id not in ACCEPTED
    ]


def _answer(url: str, asked: Sequence[tuple[str, str]]) -> _Answer:
    queries = [{"package": {"ecosystem": "PyPI", "name": name}, "version": version} for name, version in asked]
    try:
        with urllib3.PoolManager(retries=False, timeout=_TIMEOUT) as pool:
            answer = pool.request("POST", url, body=msgspec.json.encode({"queries": queries}))
        if answer.status != 200:
            raise NotReachedError(f"it answered {answer.status}")
        return msgspec.json.decode(answer.data, type=_Answer)
    except (urllib3.exceptions.HTTPError, msgspec.MsgspecError) as error:
        raise NotReachedError(type(error).__name__) from None
