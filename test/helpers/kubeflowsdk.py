"""Kubeflow's SDK in a process of its own, with its own packages, as a test operates it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environment.kubeflowsdk import kubeflow_sdk_python

_CLIENT = Path(__file__).parents[1] / "e2e" / "sdk" / "client.py"


class SdkError(Exception):
    """An exception of the SDK: its type and message."""


@dataclass(frozen=True, slots=True)
class Sdk:
    """A `TrainerClient` of one namespace, whose methods are called by name."""

    process: subprocess.Popen[str]
    log: Path

    def call(self, method: str, **arguments: Any) -> Any:
        """Returns what the method returns, with dataclasses as dicts. Raises SdkError."""
        (answer,) = self._answers(method, arguments)
        return answer["result"]

    def lines(self, method: str, **arguments: Any) -> Iterator[str]:
        """Yields the items of an iterator as soon as the SDK has them. Raises SdkError."""
        for answer in self._answers(method, arguments):
            if "item" in answer:
                yield answer["item"]

    def _answers(self, method: str, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Sends a request and yields its answers; the last one has the result."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"method": method, "arguments": arguments}) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            answer: dict[str, Any] = json.loads(line)
            if "error" in answer:
                raise SdkError(answer["error"])
            yield answer
            if "result" in answer:
                return
        raise AssertionError(f"the SDK's process has ended: {self.log.read_text()}")


@contextlib.contextmanager
def running_sdk(kubeconfig: Path, namespace: str, folder: Path) -> Iterator[Sdk]:
    """Starts the SDK's process for this namespace; its log is a file in the folder."""
    log = folder / "sdk.log"
    argv = [kubeflow_sdk_python(), _CLIENT, namespace]
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **sdk_variables(kubeconfig)},
            text=True,
        ) as process,
    ):
        try:
            yield Sdk(process, log)
        finally:
            # A follower of a log would not read the end of its input.
            process.kill()


def sdk_variables(kubeconfig: Path) -> dict[str, str]:
    """Returns the variables that a process with the SDK needs; it must not find the modules of this project."""
    return {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": ""}
