"""The jobs of `kubeflow.org/v1` in commands, against a server that serves PyTorchJobs and TFJobs of v1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.barekubeconfig import kubeconfig_with_token
from helpers.httpserver import Answer, HttpServer, Request, status_answer
from tfjob_controller.kubectl import cli
from tfjob_controller.kubectl.complete import complete

Object = dict[str, Any]
V1 = "/apis/kubeflow.org/v1"
LABELS = {
    "training.kubeflow.org/job-name": "train",
    "training.kubeflow.org/operator-name": "pytorchjob-controller",
    "training.kubeflow.org/replica-type": "worker",
    "training.kubeflow.org/replica-index": "1",
}
NAMES = {"pytorchjobs": ("train", "other"), "tfjobs": ("train",)}


def answer(request: Request) -> Answer:
    folder, _, plural = request.path.rpartition("/")
    if request.path == V1:
        return _json({"resources": [{"name": name} for name in NAMES]})
    if plural == "pods":
        pods = [{"metadata": {"name": "train-worker-1", "labels": LABELS}}]
        return _json({"items": pods if request.query["labelSelector"] == LABELS_OF_JOB else []})
    if not folder.startswith(V1 + "/") or plural not in NAMES:
        return Answer(404, b"404 page not found\n")
    if "Table" in request.headers["accept"]:
        rows = [{"cells": [name], "object": {"metadata": {"name": name, "namespace": "ns"}}} for name in NAMES[plural]]
        return _json({"kind": "Table", "metadata": {}, "columnDefinitions": [{"name": "Name"}], "rows": rows})
    return _json({"metadata": {}, "items": [{"metadata": {"name": name}} for name in NAMES[plural]]})


LABELS_OF_JOB = ",".join(
    f"training.kubeflow.org/{name}={LABELS[f'training.kubeflow.org/{name}']}" for name in ("job-name", "operator-name")
)


def _json(body: Object) -> Answer:
    return Answer(body=json.dumps(body).encode())


def test_list_has_the_kinds_that_the_cluster_serves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with HttpServer(answer) as server:
        flags = ["--kubeconfig", kubeconfig_with_token(server.url, tmp_path)]
        assert cli.main(["list", *flags]) == 0
        assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
            ["TFJob", "train"],
            ["PyTorchJob", "train"],
            ["PyTorchJob", "other"],
        ]
        assert cli.main(["list", "-o", "name", "--kind", "pytorchjob", *flags]) == 0
        assert capsys.readouterr().out == "pytorchjob.kubeflow.org/train\npytorchjob.kubeflow.org/other\n"
        assert cli.main(["list", "--kind", "jaxjob", *flags]) == 1
        assert "the cluster knows no JAXJobs: see docs/kubeflow-v1.md" in capsys.readouterr().err


def test_a_kind_of_v1_that_may_not_be_listed_hides_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = status_answer(403, "Forbidden", "you may not list pytorchjobs")
    with HttpServer(lambda request: refused if request.path.endswith("pytorchjobs") else answer(request)) as server:
        flags = ["--kubeconfig", kubeconfig_with_token(server.url, tmp_path)]
        assert cli.main(["list", "-o", "name", *flags]) == 0
        assert capsys.readouterr().out == "tfjob.kubeflow.org/train\n"
        assert cli.main(["list", "--kind", "pytorchjob", *flags]) == 1
        assert "you may not list pytorchjobs" in capsys.readouterr().err


def test_names_and_replicas_are_completed(tmp_path: Path) -> None:
    with HttpServer(answer) as server:
        flags = [f"--kubeconfig={kubeconfig_with_token(server.url, tmp_path)}"]
        assert complete(["describe", *flags, ""])[0] == ["tfjob/train", "other", "pytorchjob/train"]
        assert complete(["describe", *flags, "pytorchjob/"])[0] == ["pytorchjob/other", "pytorchjob/train"]
        assert complete(["logs", *flags, "pytorchjob/train", "--replica", ""])[0] == ["all", "worker", "worker-1"]
        assert complete(["logs", *flags, "train", "--replica", "w"])[0] == ["worker", "worker-1"]
