"""A real browser for tests of the dashboard: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from playwright.sync_api import Browser, BrowserContext, Page, expect

import localcluster.chromium
from localcluster.report import to_stderr

# Machines are shared; waits end as soon as what they wait for is there.
PATIENCE_MS = 180_000


@contextmanager
def chromium(*flags: str) -> Iterator[Browser]:
    """Starts a browser, with these flags, that is as patient as tests have to be."""
    expect.set_options(timeout=PATIENCE_MS)
    with localcluster.chromium.chromium(to_stderr, *flags) as browser:
        yield browser


@dataclass(frozen=True, slots=True)
class Visitor:
    """A browser with cookies of its own. `errors` are what its console and its pages reported."""

    context: BrowserContext
    page: Page
    errors: list[str] = field(default_factory=list)


@contextmanager
def visitor(
    browser: Browser,
    width: int = 1280,
    *,
    dark: bool = False,
    headers: dict[str, str] | None = None,
    same_as: Visitor | None = None,
) -> Iterator[Visitor]:
    """A new window with the cookies of `same_as`, or none; `headers` are added to each of its requests."""
    scheme: Literal["dark", "light"] = "dark" if dark else "light"
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        extra_http_headers=headers,
        storage_state=same_as.context.storage_state() if same_as else None,
    )
    context.set_default_timeout(PATIENCE_MS)
    found = Visitor(context, context.new_page())
    found.page.on("console", lambda line: found.errors.append(line.text) if line.type == "error" else None)
    found.page.on("pageerror", lambda error: found.errors.append(str(error)))
    try:
        yield found
    finally:
        context.close()
