"""A `TrainerClient` of Kubeflow's SDK that a test operates: a request per line of stdin, answers as lines of stdout.

    client.py NAMESPACE
    {"method": "train", "arguments": {"runtime": "torch-distributed", "trainer": {"func": "add_ranks", …}}}
    {"result": "b1f0…"}

An iterator has a line `{"item": …}` for each item as soon as it is there, and then a result. An exception is
`{"error": "RuntimeError: …"}`. It runs with the Python of `environment.kubeflowsdk`, and calls the SDK only.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import functions
from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import CustomTrainer, TrainerClient


def main() -> None:
    # What the SDK prints is no answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    sys.stdout = sys.stderr
    client = TrainerClient(KubernetesBackendConfig(namespace=sys.argv[1]))
    for line in sys.stdin:
        request = json.loads(line)
        try:
            result = getattr(client, request["method"])(**values(client, request["method"], request["arguments"]))
            if isinstance(result, Iterator):
                for item in result:
                    answer(answers, item=item)
                result = None
            answer(answers, result=result)
        except Exception as error:
            answer(answers, error=f"{type(error).__name__}: {error}")


def values(client: TrainerClient, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments as the SDK expects them."""
    found = dict(arguments)
    if method == "list_jobs" and "runtime" in found:
        found["runtime"] = client.get_runtime(found["runtime"])
    if "status" in found:
        found["status"] = set(found["status"])
    if "trainer" in found:
        trainer = found["trainer"]
        found["trainer"] = CustomTrainer(**{**trainer, "func": getattr(functions, trainer["func"])})
    return found


def answer(answers: TextIO, **content: Any) -> None:
    answers.write(json.dumps(content, default=plain) + "\n")
    answers.flush()


def plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else str(value)


if __name__ == "__main__":
    main()
