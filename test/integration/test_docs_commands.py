"""Every command of the README and the docs, page by page and in its order, in bash on a real API server.

Each command runs unchanged; helpers/docsstage.py has the preconditions of each page. helpers/docselsewhere.py lists the
few commands that cannot run here, with the tests that run them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.cluster import Cluster
from helpers.docs import ROOT, Command, blocks, commands, inline_commands, pages
from helpers.docselsewhere import claim_on
from helpers.docsshell import Shell, follow
from helpers.docsstage import Stage, page_of, running_stage
from helpers.kubectl import Kubectl

# Several pages install the whole system, and every command is a process or two.
pytestmark = pytest.mark.cluster

# What a newcomer reads; `make test` runs these alone.
FIRST_PAGES = ("README.md", "docs/quickstart.md")
RUN = {page: [each for each in commands(page) if claim_on(each) is None] for page in pages()}
RUNBOOKS = [page for page in pages() if "/runbooks/" in page]
PLACEHOLDERS = {"…": "x", "COMMAND": "list", "NAMESPACE": "default", "NAME": "none", "POD": "none"}
# What kubectl says of a command that it understands, where nothing is installed and no job runs; texts may also name a
# command without its arguments.
NOT_FOUND = re.compile(r"not found")
UNDERSTOOD = re.compile(r"not found|NotFound|[Rr]equired|must (provide|specify|be)")


@pytest.fixture(scope="module")
def stage(gang_plane: Cluster, tmp_path_factory: pytest.TempPathFactory, pair: tuple[Path, Path]) -> Iterator[Stage]:
    with running_stage(gang_plane, tmp_path_factory.mktemp("docs"), pair) as stage:
        yield stage


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[] if page in FIRST_PAGES else pytest.mark.long) for page, found in RUN.items() if found],
)
def test_the_commands_of_a_page_do_what_it_says(page: str, stage: Stage, tmp_path: Path) -> None:
    shell = Shell(tmp_path, stage.cluster.kubeconfig)
    write_files(page, shell.folder)
    with stage.reading(page_of(page)):
        for command in RUN[page]:
            follow(shell, command, page_of(page).replaced, has_logs=False)


@pytest.mark.parametrize(
    ("texts", "understood"),
    [
        pytest.param(RUNBOOKS, NOT_FOUND, id="runbooks"),
        pytest.param(
            [page for page in pages() if page not in RUNBOOKS], UNDERSTOOD, id="other pages", marks=pytest.mark.long
        ),
    ],
)
def test_kubectl_understands_the_commands_in_the_running_text(
    texts: list[str], understood: re.Pattern[str], control_plane: Cluster, administrator: Kubectl, tmp_path: Path
) -> None:
    """test_overlays.py applies overlays."""
    named = {
        command.text.partition(" |")[0]: command
        for page in texts
        for command in inline_commands(page)
        if command.text.startswith("kubectl ") and not command.text.startswith("kubectl apply ")
    }
    assert len(named) > 10
    shell = Shell(tmp_path, control_plane.kubeconfig)
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda entry: misunderstood(shell, understood, *entry), named.items())
    assert [answer for answer in answers if answer] == []


def misunderstood(shell: Shell, understood: re.Pattern[str], text: str, command: Command) -> str:
    """The error, if it is about the command and not about what is not there."""
    said = shell.run(replace(command, text=text), PLACEHOLDERS)
    return "" if said.code == 0 or understood.search(said.error) else f"{command.place}\n{said.error}"


def write_files(page: str, folder: Path) -> None:
    """The files that a page shows under their names."""
    for block in blocks((ROOT / page).read_text("utf-8")):
        if block.title:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text("\n".join(block.lines) + "\n", "utf-8")
