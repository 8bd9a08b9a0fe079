"""The example notebook in a kernel of its own, as Jupyter runs it, against a real API server and a real controller."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from helpers.cluster import Cluster
from helpers.logkubelet import Kubelet
from helpers.playground import PATIENCE_SECONDS, Playground, Trial
from helpers.poll import eventually
from localcluster.fakekubelet import FakeKubelet

pytestmark = pytest.mark.cluster

NOTEBOOK = Path(__file__).parents[2] / "docs/examples/train.ipynb"
JOB = "from-a-notebook"
CELL_SECONDS = 240


@pytest.fixture
def kernel_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of the kernel's is left in anybody's home; its sockets are files, whose paths must be short."""
    with tempfile.TemporaryDirectory(prefix="nb", dir="/tmp") as folder:
        for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
            monkeypatch.setenv(name, folder)
        yield


def parameterized(**values: object) -> nbformat.NotebookNode:
    """With a cell after the one tagged `parameters`, as papermill does."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    tagged = next(index for index, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", ()))
    source = "\n".join(f"{name} = {value!r}" for name, value in values.items())
    notebook.cells.insert(tagged + 1, nbformat.v4.new_code_cell(source))
    return notebook


def shown(notebook: nbformat.NotebookNode, cell_id: str) -> str:
    """All that a cell shows, as HTML where it has that."""
    (cell,) = [cell for cell in notebook.cells if cell.id == cell_id]
    words = []
    for output in cell.outputs:
        data = output.get("data", {})
        words.append(output.get("text", "") or data.get("text/html", "") or data.get("text/plain", ""))
    return "".join(words)


def test_the_notebook_runs_from_its_first_cell_to_its_last(
    control_plane: Cluster,
    playground: Playground,
    logging_node: Kubelet,
    kernel_home: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    trial = Trial(playground, JOB, playground.jobs)
    notebook = parameterized(namespace=trial.namespace, pod={"nodeName": logging_node.name})

    def end_when_it_was_scaled() -> None:
        eventually(lambda: any(job["metadata"]["name"] == JOB for job in trial.jobs.all()), CELL_SECONDS, 0.2)
        trial.await_running("worker-2")
        eventually(lambda: [each for each in logging_node.requests if "follow" in each.query], CELL_SECONDS, 0.2)
        trial.end("master-0")

    kubelet = FakeKubelet(
        control_plane.api,
        namespace=trial.namespace,
        nodes=(logging_node.name,),
    )
    player = threading.Thread(target=end_when_it_was_scaled, name="player", daemon=True)
    try:
        with kubelet:
            player.start()
            kernel = AsyncKernelManager(kernel_name="python3", transport="ipc")
            NotebookClient(notebook, km=kernel, timeout=CELL_SECONDS, startup_timeout=CELL_SECONDS).execute()
    finally:
        trial.clear()
        player.join(PATIENCE_SECONDS)
    assert JOB in shown(notebook, "list")
    assert "worker-2" in shown(notebook, "scale")
    assert shown(notebook, "logs").startswith("[master-0] step 1 of ")
    assert "<td" in shown(notebook, "wait")
    assert "Done" in shown(notebook, "wait")


def test_the_notebook_is_kept_without_what_it_printed() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert not any(cell.outputs or cell.execution_count for cell in code)
    nbformat.validate(notebook)
