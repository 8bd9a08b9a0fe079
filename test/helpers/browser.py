"""A real browser for tests of the dashboard: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, BrowserContext, Page, expect

import localcluster.chromium

# Machines are shared; waits end as soon as what they wait for is there.
PATIENCE_MS = 60_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """Starts a browser that is as patient as tests have to be."""
    expect.set_options(timeout=PATIENCE_MS)
    with localcluster.chromium.chromium() as browser:
        yield browser


@dataclass(frozen=True, slots=True)
class Visitor:
    """A browser with cookies of its own. `errors` are what its console and its pages reported."""

    context: BrowserContext
    page: Page
    errors: list[str] = field(default_factory=list)


@contextmanager
def visitor(browser: Browser, width: int = 1280, *, dark: bool = False) -> Iterator[Visitor]:
    scheme = "dark" if dark else "light"
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE_MS)
    found = Visitor(context, context.new_page())
    found.page.on("console", lambda line: found.errors.append(line.text) if line.type == "error" else None)
    found.page.on("pageerror", lambda error: found.errors.append(str(error)))
    try:
        yield found
    finally:
        context.close()
