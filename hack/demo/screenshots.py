"""Takes the pictures of docs/dashboard.md, from the dashboard's demo in a real browser.

A picture of each page is written to `docs/img`, or to another folder. The cluster ends with it, unless it was there.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page
from rich.console import Console

from demo import dashboard
from demo.ownstage import is_running, kept_stage
from demo.play import exit_code
from demo.screen import Screen
from demo.stage import ROOT, Stage, ending, wait
from localcluster import stack
from localcluster.chromium import chromium

NAMESPACE, NAME = "language", "llama-finetune"
JOB = f"/jobs/{NAMESPACE}/trainjob/{NAME}"
COMPARISON = f"/compare?job=trainjob/{NAMESPACE}/{NAME}&job=trainjob/language/bert-elastic"
# The number of steps of that job after which its charts show something, and how long they may take.
STEPS, TIMEOUT_SECONDS = 400, 900
DESK, PHONE = 1280, 400
# The name of each picture, its width and height, the colour scheme, the page's address, and what is on the page when it
# is complete.
PICTURES: tuple[tuple[str, int, int, Literal["light", "dark"], str, str], ...] = (
    ("dashboard-jobs", DESK, 900, "light", "/jobs?namespace=", ".spark"),
    ("dashboard-jobs-phone", PHONE, 860, "dark", "/jobs?namespace=", "tbody .pill"),
    ("dashboard-job", DESK, 1000, "light", JOB, "canvas"),
    ("dashboard-job-dark", DESK, 1000, "dark", JOB, "canvas"),
    ("dashboard-compare", DESK, 900, "light", COMPARISON, "canvas"),
    ("dashboard-new", DESK, 900, "light", f"/new?from=TrainJob/{NAMESPACE}/{NAME}", "#new-yaml"),
    ("dashboard-queue", DESK, 640, "light", "/queue?namespace=", "td"),
    ("dashboard-cluster", DESK, 520, "light", "/cluster?namespace=", ".usage"),
)


def main() -> int:
    """Takes the pictures and returns the exit code."""
    parser = argparse.ArgumentParser(prog="make screenshots", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "img", help="where the pictures are written")
    folder: Path = parser.parse_args().folder
    screen = Screen(Console(highlight=False))
    return exit_code(screen, lambda: _picture(screen, folder))


def _picture(screen: Screen, folder: Path) -> bool:
    name = dashboard.CLUSTER.name
    was_there = is_running(name)
    stage = kept_stage(screen, dashboard.CLUSTER, dashboard.fill)
    stop = functools.partial(stack.down, stage.folder, lambda _: None)
    with nullcontext() if was_there else ending(stop):
        screen.step(f"waiting for step {STEPS} of {NAME}")
        wait(lambda: _has_steps(stage), TIMEOUT_SECONDS, f"{NAME} to reach step {STEPS}")
        with _served(stage.kubectl.kubeconfig) as address, chromium(screen.detail) as browser:
            page = browser.new_page(device_scale_factor=1.5)
            page.goto(address)
            _take(page, address, folder, screen)
    return True


def _has_steps(stage: Stage) -> bool:
    path = dashboard.RESOURCE_PATHS["TrainJob"].format(NAMESPACE)
    metrics = stage.api.get(f"{path}/{NAME}").get("status", {}).get("metrics", ())
    return any(metric["name"] == "step" and float(metric["value"]) >= STEPS for metric in metrics)


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
    for name, width, height, scheme, path, complete in PICTURES:
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        page.goto(f"{origin}{path}")
        page.locator(complete).first.wait_for()
        page.screenshot(path=folder / f"{name}.png")
        screen.output(f"  {folder / name}.png")


if __name__ == "__main__":
    sys.exit(main())
