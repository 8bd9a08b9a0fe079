"""The controller as users run it: a process of its own, with what it costs in time, memory and requests."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import urllib3

from bench import usage

READY_LIMIT_SECONDS = 60.0
_POLL_SECONDS = 0.01
_REQUESTS = re.compile(r'^rest_client_requests_total\{[^}]*method="(\w+)"[^}]*\} (\S+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Controller:
    """One that runs."""

    process: subprocess.Popen[bytes]
    probes_url: str
    metrics_url: str

    def wait_ready(self) -> None:
        """Until `/readyz` says yes. RuntimeError if it ends before, TimeoutError if it takes too long."""
        begin = time.monotonic()
        while time.monotonic() - begin < READY_LIMIT_SECONDS:
            if self.process.poll() is not None:
                raise RuntimeError(f"the controller ended with exit code {self.process.returncode}")
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                if urllib3.request("GET", f"{self.probes_url}/readyz", retries=False, timeout=1.0).status == 200:
                    return
            time.sleep(_POLL_SECONDS)
        raise TimeoutError(f"not ready within {READY_LIMIT_SECONDS:.0f} s")

    def requests(self) -> dict[str, int]:
        """What it has sent so far by its own count, watches and events included, by method."""
        text = urllib3.request("GET", f"{self.metrics_url}/metrics").data.decode()
        counts: dict[str, int] = {}
        for method, count in _REQUESTS.findall(text):
            counts[method] = counts.get(method, 0) + int(float(count))
        return counts

    def cpu_seconds(self) -> float:
        """Of all its threads, in user and system mode, since its start."""
        return usage.cpu_seconds(self.process.pid)

    def resident_bytes(self) -> int:
        return usage.resident_bytes(self.process.pid)


@contextlib.contextmanager
def controller(kubeconfig: Path, *flags: str) -> Iterator[Controller]:
    """Start one with these flags; it is stopped at the end."""
    probes, metrics = _free_address(), _free_address()
    command = [sys.executable, "-m", "tfjob_controller", "run", f"--kubeconfig={kubeconfig}"]
    servers = [f"--health-probe-bind-address={probes}", f"--metrics-bind-address={metrics}"]
    with subprocess.Popen(
        [*command, *servers, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield Controller(process, f"http://{probes}", f"http://{metrics}")
        finally:
            process.terminate()


def _free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"
