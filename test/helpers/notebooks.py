"""Notebooks in kernels of their own, as Jupyter runs them."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CELL_SECONDS = 240


@contextlib.contextmanager
def kernel_home() -> Iterator[Path]:
    """Nothing of the kernel's is left in anybody's home; its sockets are files, whose paths must be short."""
    with tempfile.TemporaryDirectory(prefix="nb", dir="/tmp") as folder, pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
            monkeypatch.setenv(name, folder)
        yield Path(folder)


def add_kernel(home: Path, name: str, argv: Sequence[str], variables: Mapping[str, str]) -> None:
    """Adds a kernel to those in a folder that `kernel_home` made; the connection file is added to its arguments."""
    folder = home / "kernels" / name
    folder.mkdir(parents=True)
    spec = {"display_name": name, "language": "python", "argv": [*argv, "{connection_file}"], "env": dict(variables)}
    (folder / "kernel.json").write_text(json.dumps(spec))


def parameterized(path: Path, **values: object) -> nbformat.NotebookNode:
    """Returns the notebook with a cell after the one tagged `parameters`, as papermill does."""
    notebook = nbformat.read(path, as_version=4)
    tagged = next(index for index, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", ()))
    source = "\n".join(f"{name} = {value!r}" for name, value in values.items())
    notebook.cells.insert(tagged + 1, nbformat.v4.new_code_cell(source))
    return notebook


def execute(notebook: nbformat.NotebookNode, kernel: str = "python3") -> None:
    """Runs all cells, whose outputs are then in the notebook. The error of a cell is raised."""
    manager = AsyncKernelManager(kernel_name=kernel, transport="ipc")
    NotebookClient(notebook, km=manager, timeout=CELL_SECONDS, startup_timeout=CELL_SECONDS).execute()


def shown(notebook: nbformat.NotebookNode, cell_id: str) -> str:
    """Returns all that a cell shows, as HTML where it has that."""
    (cell,) = [cell for cell in notebook.cells if cell.id == cell_id]
    words = []
    for output in cell.outputs:
        data = output.get("data", {})
        words.append(output.get("text", "") or data.get("text/html", "") or data.get("text/plain", ""))
    return "".join(words)
