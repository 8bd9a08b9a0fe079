"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from localcluster.debian import ensure_packages
from localcluster.report import Report, to_stderr

_PROGRAM = "chromium"
# Chromium's own sandbox does not work for root.
_ROOT_FLAGS = ("--no-sandbox",) if os.geteuid() == 0 else ()


@contextmanager
def chromium(report: Report = to_stderr, *flags: str) -> Iterator[Browser]:
    """Installs Chromium if it is missing, and starts it with these flags. Raises LocalClusterError."""
    ensure_packages({_PROGRAM: _PROGRAM}, report)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which(_PROGRAM), args=[*_ROOT_FLAGS, *flags])
        yield browser
        browser.close()
