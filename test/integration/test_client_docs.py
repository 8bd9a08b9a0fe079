"""Every example of docs/client.md, in its order, on a real API server with a real controller."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.cluster import Cluster
from helpers.docs import DOCS
from helpers.logkubelet import Kubelet
from helpers.playground import Playground, Trial
from localcluster.fakekubelet import FakeKubelet

pytestmark = pytest.mark.cluster

PAGE = (DOCS / "client.md").read_text("utf-8")
# A block, and what the page says that it shows.
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```$(?:\n\n^```text\n(?P<shown>.*?)^```$)?", re.MULTILINE | re.DOTALL)
POOL = '"nodeSelector": {"pool": "training"}'
JOBS = ("mnist", "finetune")


def run(code: str, names: dict[str, Any]) -> str:
    """What a block prints, or what its last expression is, as at a prompt."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "client.md", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "client.md", "eval"), names)
            print("" if value is None else repr(value))
    return out.getvalue()


@pytest.fixture
def kubeconfig(control_plane: Cluster, playground: Playground, tmp_path: Path) -> Path:
    """One whose context is in the playground's namespace."""
    config = yaml.safe_load(control_plane.kubeconfig.read_text("utf-8"))
    for each in config["contexts"]:
        each["context"]["namespace"] = playground.jobs.namespace
    path = tmp_path / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config), "utf-8")
    return path


@pytest.fixture
def kubelet(control_plane: Cluster, playground: Playground, logging_node: Kubelet) -> Iterator[Kubelet]:
    """A node with logs on which pods run until they are deleted; the page's jobs are taken away from it again."""
    with FakeKubelet(control_plane.api, namespace=playground.jobs.namespace, nodes=(logging_node.name,)):
        yield logging_node
        for name in JOBS:
            Trial(playground, name, playground.jobs).clear()


def test_every_example_of_the_page_runs_and_shows_what_it_says(
    kubeconfig: Path, playground: Playground, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    names: dict[str, Any] = {}
    blocks = list(BLOCK.finditer(PAGE))
    assert len(blocks) == PAGE.count("```python")
    for block in blocks:
        out = run(block["code"].replace(POOL, f'"nodeName": "{kubelet.name}"'), names)
        if block["shown"]:
            expected = block["shown"].replace("team-a", playground.jobs.namespace).splitlines()[0]
            assert out.splitlines()[0].split() == expected.split()
    assert POOL in PAGE
    names["client"].close()
