"""A real browser for tests of the dashboard: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from localcluster.debian import ensure_packages

_PROGRAM = "chromium"
# Machines are shared; waits end as soon as what they wait for is there.
PATIENCE_MS = 60_000
# Chromium's own sandbox does not work for root.
_ROOT_FLAGS = ("--no-sandbox",) if os.geteuid() == 0 else ()


@contextmanager
def chromium() -> Iterator[Browser]:
    """Installs Chromium if it is missing, and starts it."""
    ensure_packages({_PROGRAM: _PROGRAM}, lambda line: print(line, flush=True))
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which(_PROGRAM), args=[*_ROOT_FLAGS])
        yield browser
        browser.close()


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
