"""Which writes of an audit log count in `make bench-kubeflow-v1`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.v1contenders import Write, writes_of

ELSEWHERE = "elsewhere"


def entry(verb: str, resource: str, agent: str, namespace: str = "jobs", **reference: str) -> str:
    fields: dict[str, Any] = {"resource": resource, "namespace": namespace, **reference}
    return json.dumps({"verb": verb, "userAgent": agent, "objectRef": fields}) + "\n"


def test_writes_in_a_namespace_count_from_an_offset_and_name_who_wrote(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(entry("create", "tfjobs", "curl/8"))
    offset = log.stat().st_size
    with log.open("a") as end:
        end.write(entry("create", "pods", "training-operator/v0.0.0 (linux/amd64)", name="job-worker-0"))
        end.write(entry("patch", "tfjobs", "training-operator-sdk/1", name="job", subresource="status"))
        end.write(entry("create", "pods", "training-operator/v0.0.0", ELSEWHERE))
        end.write(json.dumps({"verb": "create", "requestURI": "/version"}) + "\n")
        end.write('{"verb": "cre')
    assert writes_of(log, offset, "jobs", "training-operator") == [
        Write("create", "pods", "job-worker-0", is_of_operator=True),
        Write("patch", "tfjobs/status", "job", is_of_operator=False),
    ]
