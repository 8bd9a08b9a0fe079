"""Completion of `kubectl tfjob` by real shells and by kubectl's own, with names from a real API server."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.cluster import Cluster
from helpers.manifests import master, tfjob, workers
from helpers.playground import Playground, Trial
from helpers.plugin import environment
from helpers.trainmanifests import trainjob
from localcluster import binaries, debian
from localcluster.api import Api
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.kubectl.complete import complete

pytestmark = pytest.mark.cluster

# What a line may be completed to.
Complete = Callable[[str], list[str]]
_TIMEOUT_SECONDS = 600

# Types a line, whose last word is completed, into the shell's own machinery, and prints the candidates.
BASH = r"""
source <(kubectl-tfjob completion bash)
COMP_LINE=$1 COMP_POINT=${#1}
read -ra COMP_WORDS < <(printf '%s' "${1//=/ = }")
[[ $1 == *" " || $1 == *= ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
"$(complete -p kubectl-tfjob | sed -E 's/.*-F ([^ ]+) .*/\1/')"
printf '%s\n' "${COMPREPLY[@]}"
"""
FISH = "kubectl-tfjob completion fish | source; complete -C $argv[1]"
# A shell on a terminal of its own, whose line is asked for after a tab.
ZSH = r"""
zmodload zsh/zpty
answer=$(mktemp)
zpty shell zsh -f -i
zpty -w shell "unsetopt zle_bracketed_paste; autoload -U compinit; compinit -u -D"
zpty -w shell "source <(kubectl-tfjob completion zsh)"
zpty -w shell "show() { print -r -- \$BUFFER >$answer }; zle -N show; bindkey '^X' show; PROMPT='REA''DY>'"
zpty -r -m shell line '*READY>*'
zpty -n -w shell "$1"$'\t\x18'
while [[ ! -s $answer ]]; do sleep 0.1; done
cat $answer
zpty -d shell
"""


@pytest.fixture
def places(control_plane: Cluster, api: Api, namespace: str, tmp_path: Path) -> dict[str, str]:
    """The environment of a shell, in a namespace with jobs of both kinds that no controller looks at."""
    api.create(TFJOBS.path(namespace), tfjob(master(), name="twin"))
    api.create(TFJOBS.path(namespace), tfjob(master(), name="alpha"))
    api.create(TRAINJOBS.path(namespace), trainjob("twin", 2))
    api.create(TRAINJOBS.path(namespace), trainjob("beta", 2))
    return environment(control_plane.kubeconfig, namespace, tmp_path)


@pytest.fixture(autouse=True)
def _crds(administrator: object) -> None:
    """The kinds are there."""


def candidates(line: str, env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("KUBECONFIG", env["KUBECONFIG"])
    found, _ = complete([*shlex.split(line), *([""] if line.endswith(" ") else [])])
    return [each.partition("\t")[0] for each in found]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("describe ", ["alpha", "tfjob/twin", "beta", "trainjob/twin"], id="jobs"),
        pytest.param("describe trainjob/b", ["trainjob/beta"], id="jobs of a kind that begin so"),
        pytest.param("delete alpha ", ["tfjob/twin", "beta", "trainjob/twin"], id="further jobs"),
        pytest.param("scale ", ["alpha", "tfjob/twin", "beta", "trainjob/twin"], id="jobs that can be scaled"),
        pytest.param("list --namespace=kube-p", ["kube-public"], id="namespaces"),
    ],
)
def test_names_come_from_the_cluster(
    places: dict[str, str], line: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert candidates(line, places, monkeypatch) == expected


def test_replicas_are_those_that_have_pods(
    control_plane: Cluster, playground: Playground, trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.submit(master(), workers(2))
    trial.await_phase("Running")
    env = environment(control_plane.kubeconfig, playground.jobs.namespace, tmp_path)
    found = candidates(f"logs {trial.name} --replica ", env, monkeypatch)
    assert found == ["all", "master", "worker", "master-0", "worker-0", "worker-1"]


def test_kubectl_completes_the_plugin(places: dict[str, str]) -> None:
    """As its own scripts ask it."""
    kubectl = str(binaries.ensure("kubectl"))
    assert _output([kubectl, "__complete", "tfjob", "sus"], places) == [
        "suspend\tstop the pods of a job, and keep the job",
        ":4",
    ]
    assert _output([kubectl, "__complete", "tfjob", "describe", "a"], places) == ["alpha", ":4"]


@pytest.fixture(params=["bash", "fish", "zsh"])
def shell(request: pytest.FixtureRequest, places: dict[str, str], tmp_path: Path) -> Complete:
    """One of the shells; Debian has those that are not there."""
    name = request.param
    if shutil.which(name) is None:
        if sys.platform != "linux" or os.geteuid() != 0:
            pytest.skip(f"needs {name}: install it")
        debian.ensure_packages({name: name}, print)
    script = tmp_path / f"complete.{name}"
    script.write_text({"bash": BASH, "fish": FISH, "zsh": ZSH}[name])
    flags = {"bash": ["--norc"], "fish": ["--no-config"], "zsh": ["-f"]}[name]

    def run(line: str) -> list[str]:
        return [each.partition("\t")[0].strip() for each in _output([name, *flags, str(script), line], places)]

    return run


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("kubectl-tfjob describe al", "alpha", id="a job"),
        pytest.param("kubectl-tfjob list --kind=tr", "trainjob", id="a flag's value"),
        pytest.param("kubectl-tfjob list --kubeconfig /et", "/etc", id="a file"),
    ],
)
def test_a_shell_completes_a_word(shell: Complete, line: str, expected: str) -> None:
    (found,) = [each for each in shell(line) if expected in each][:1]
    assert found.rstrip("/").endswith(expected)


def _output(command: list[str], env: dict[str, str]) -> list[str]:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    return [line for line in done.stdout.splitlines() if line]
