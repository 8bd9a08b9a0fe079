"""Takes the pictures of docs/dashboard.md, from the dashboard's demo in a real browser.

A picture of each page is written to `docs/img`, or to another folder. The cluster ends with it, unless it was there.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page
from rich.console import Console

from demo import dashboard
from demo.follow import DemoError
from demo.keptcluster import is_running
from demo.kubectl import Kubectl, KubectlError
from demo.screen import Screen
from demo.steps import ROOT
from localcluster import binaries, stack, state
from localcluster.chromium import chromium
from localcluster.errors import LocalClusterError

SHOWN_JOB = "resnet"
# The number of steps of that job after which its charts show something, and how long they may take.
STEPS, TIMEOUT_SECONDS = 90, 600
WIDTH = 1200
_POLL_SECONDS = 1.0
# The name of each picture, its height, the page's address, and what is on the page when it is complete.
PICTURES = (
    ("dashboard-jobs", 1000, "/jobs", ".spark"),
    ("dashboard-job", 1700, f"/jobs/default/TrainJob/{SHOWN_JOB}", "canvas"),
    ("dashboard-new", 1200, f"/new?from=TrainJob/default/{SHOWN_JOB}", "#new-yaml"),
    ("dashboard-queue", 640, "/queue", "td"),
    ("dashboard-cluster", 400, "/cluster", ".usage"),
)


def main() -> int:
    """Takes the pictures and returns the exit code."""
    parser = argparse.ArgumentParser(prog="make screenshots", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "img", help="where the pictures are written")
    folder: Path = parser.parse_args().folder
    screen = Screen(Console(highlight=False))
    was_there = is_running(dashboard.NAME)
    try:
        kubeconfig = dashboard.prepare(screen)
        _await_steps(Kubectl(binaries.ensure("kubectl", screen.detail), kubeconfig, dashboard.NAMESPACE), screen)
        with _served(kubeconfig) as address, chromium(screen.detail) as browser:
            page = browser.new_page()
            page.goto(address)
            _take(page, address, folder, screen)
    except (DemoError, KubectlError, LocalClusterError) as error:
        screen.error(str(error))
        return 1
    finally:
        if not was_there:
            stack.down(state.stack_dir(dashboard.NAME), lambda _: None)
    return 0


def _await_steps(kubectl: Kubectl, screen: Screen) -> None:
    """Waits until the log of the job that is shown is long enough. Raises `DemoError`."""
    screen.step(f"waiting for step {STEPS} of {SHOWN_JOB}")
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        metrics = kubectl.get("trainjob", SHOWN_JOB).get("status", {}).get("metrics", ())
        if any(each["name"] == "step" and float(each["value"]) >= STEPS for each in metrics):
            return
        time.sleep(_POLL_SECONDS)
    raise DemoError(f"{SHOWN_JOB} has not reached step {STEPS} within {TIMEOUT_SECONDS} s")


@contextmanager
def _served(kubeconfig: Path) -> Iterator[str]:
    """Yields the address of a dashboard, which can be opened once."""
    command = [sys.executable, "-m", "tfjob_controller.kubectl", "dashboard", "--no-browser"]
    # A relative path, since each page shows it.
    environment = {**os.environ, "KUBECONFIG": kubeconfig.name}
    where = kubeconfig.parent
    with subprocess.Popen(command, env=environment, cwd=where, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip() if process.stdout else ""
        finally:
            process.terminate()


def _take(page: Page, address: str, folder: Path, screen: Screen) -> None:
    origin = re.sub(r"/login.*", "", address)
    for name, height, path, complete in PICTURES:
        page.set_viewport_size({"width": WIDTH, "height": height})
        page.goto(f"{origin}{path}")
        page.locator(complete).first.wait_for()
        page.screenshot(path=folder / f"{name}.png")
        screen.output(f"  {folder / name}.png")


if __name__ == "__main__":
    sys.exit(main())
