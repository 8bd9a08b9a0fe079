"""Every command of the README and the docs, page by page and in its order, in bash on a real API server.

Each runs as it stands on its page; what a page's commands need beforehand says helpers/docspages.py. The few that
cannot run here are named in helpers/docselsewhere.py, with the test that runs them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.cluster import Cluster
from helpers.docscommands import ROOT, Command, blocks, commands, inline_commands, pages
from helpers.docselsewhere import claim_on
from helpers.docspages import page_of
from helpers.docsshell import Said, Shell
from helpers.docsshown import missing_from
from helpers.docsstage import PATIENCE_SECONDS, Stage, running_stage
from helpers.kubectl import Kubectl
from helpers.poll import eventually

# Several pages install the whole system, and every command is a process or two.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

# What a newcomer reads; `make test` runs these alone.
FIRST_PAGES = ("README.md", "docs/quickstart.md")
RUN = {page: [each for each in commands(page) if claim_on(each) is None] for page in pages()}
# In the running text. test_monitoring_docs.py runs those of the runbooks, test_overlays.py applies overlays.
NAMED = {
    each.text.partition(" |")[0]: each
    for page in pages()
    for each in inline_commands(page)
    if each.text.startswith("kubectl ") and not each.text.startswith("kubectl apply ") and "/runbooks/" not in page
}
PLACEHOLDERS = {"…": "x", "COMMAND": "list", "NAMESPACE": "default", "NAME": "none", "POD": "none"}
# What kubectl says of a command that it understands, where nothing is installed and no job runs.
UNDERSTOOD = re.compile(r"not found|NotFound|[Rr]equired|must (provide|specify|be)")
# What only looks may be asked until it shows what the page says: pods need a moment.
LOOKS = ("get", "describe", "logs", "events", "wait", "rollout", "top", "tfjob list", "tfjob describe", "tfjob explain",
         "tfjob logs", "tfjob queue", "tfjob top")  # fmt: skip


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
            follow(shell, command)


@pytest.mark.long
def test_what_the_text_says_to_call_kubectl_understands(
    control_plane: Cluster, administrator: Kubectl, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, control_plane.kubeconfig)
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda each: misunderstood(shell, *each), NAMED.items())
    assert [each for each in answers if each] == []


def misunderstood(shell: Shell, text: str, command: Command) -> str:
    """The error, if it is about the command and not about what is not there."""
    said = shell.run(replace(command, text=text), PLACEHOLDERS)
    return "" if said.code == 0 or UNDERSTOOD.search(said.error) else f"{command.place}\n{said.error}"


def follow(shell: Shell, command: Command) -> None:
    """Run it, or look again and again until it shows what it should."""
    replaced = page_of(command.page).replaced
    problems = [wrong(command, shell.run(command, replaced))]

    def is_right() -> bool:
        problems.append(wrong(command, shell.run(command, replaced)))
        return not problems[-1]

    if problems[-1] and only_looks(command):
        with contextlib.suppress(AssertionError):  # what it printed last says more
            eventually(is_right, PATIENCE_SECONDS, 0.2)
    assert not problems[-1], problems[-1]


def wrong(command: Command, said: Said) -> str:
    """What differs from the page; "" if nothing does."""
    if said.code:
        return f"{command.place}\nended with {said.code}:\n{said.out}\n{said.error}"
    # No program runs here that would print a log.
    missing = [] if re.search(r"\blogs\b", command.text) else missing_from(said.out, command.shown)
    return f"{command.place}\ndid not print {missing}, but:\n{said.out}\n{said.error}" if missing else ""


def only_looks(command: Command) -> bool:
    words = [word for word in command.text.split() if not word.startswith("-")]
    return words[0] == "kubectl" and any(f"{' '.join(words[1:])} ".startswith(f"{look} ") for look in LOOKS)


def write_files(page: str, folder: Path) -> None:
    """The files that a page shows under their names."""
    for block in blocks((ROOT / page).read_text("utf-8")):
        if block.title:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text("\n".join(block.lines) + "\n", "utf-8")
