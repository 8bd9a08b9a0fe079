"""The example notebook in a kernel of its own, as Jupyter runs it, against a real API server and a real controller."""

from __future__ import annotations

import threading
from pathlib import Path

import nbformat
import pytest

from helpers.cluster import Cluster
from helpers.logkubelet import Kubelet
from helpers.notebooks import CELL_SECONDS, EXAMPLES, execute, kernel_home, parameterized, shown
from helpers.playground import Playground, Trial
from helpers.poll import PATIENCE_SECONDS, eventually
from localcluster.fakekubelet import FakeKubelet

pytestmark = pytest.mark.cluster

JOB = "from-a-notebook"


def test_the_notebook_runs_from_its_first_cell_to_its_last(
    control_plane: Cluster,
    playground: Playground,
    logging_node: Kubelet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    trial = Trial(playground, JOB, playground.jobs)
    notebook = parameterized(EXAMPLES / "train.ipynb", namespace=trial.namespace, pod={"nodeName": logging_node.name})

    def end_when_it_was_scaled() -> None:
        eventually(lambda: any(job["metadata"]["name"] == JOB for job in trial.jobs.all()), CELL_SECONDS)
        trial.await_running("worker-2")
        eventually(lambda: [each for each in logging_node.requests if "follow" in each.query], CELL_SECONDS)
        trial.end("master-0")

    kubelet = FakeKubelet(
        control_plane.api,
        namespace=trial.namespace,
        nodes=(logging_node.name,),
    )
    player = threading.Thread(target=end_when_it_was_scaled, name="player", daemon=True)
    try:
        with kubelet, kernel_home():
            player.start()
            execute(notebook)
    finally:
        trial.clear()
        player.join(PATIENCE_SECONDS)
    assert JOB in shown(notebook, "list")
    assert "worker-2" in shown(notebook, "scale")
    assert shown(notebook, "logs").startswith("[master-0] step 1 of ")
    assert "<td" in shown(notebook, "wait")
    assert "Done" in shown(notebook, "wait")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_what_it_printed(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert not any(cell.outputs or cell.execution_count for cell in code)
    nbformat.validate(notebook)
