"""The commands of the docs that test_docs_commands.py does not run: which test runs each one, or why none can.

It runs all others unchanged, page by page. test/unit/test_docscommands.py checks each entry: the named test exists and
contains `words`. The recipes of the make targets that pages name are read there too.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass

from helpers.docs import Command, commands

_IMAGE = "test/integration/test_image.py"
_MONITORING = "test/integration/test_monitoring_docs.py"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Commands of `pages` that begin with a match of `pattern`.

    `words` in `test` show that it runs them; `why` is the reason why they cannot be run unchanged.
    """

    pattern: str
    test: str = ""
    words: str = ""
    why: str = ""
    pages: str = "*"

    def takes(self, command: Command) -> bool:
        return fnmatch.fnmatch(command.page, self.pages) and re.match(self.pattern, command.text) is not None


ELSEWHERE = (
    Elsewhere(r"make\b", why="the tests of the module that the recipe runs have arguments of their own"),
    Elsewhere(
        r"helm ",
        "test/integration/test_helm_release.py",
        "commands(PAGE)",
        "they install what other commands of the page install",
        "docs/install.md",
    ),
    Elsewhere(
        r"docker (build|push|pull|tag|inspect|run|save)\b",
        _IMAGE,
        "images.ensure(images.CONTROLLER",
        "no Docker here; buildah builds the Dockerfile",
    ),
    Elsewhere(
        r"for n in |kill \$loops",
        why="it loads the machine on purpose, to search for a race",
        pages="docs/testing.md",
    ),
    Elsewhere(r"kind create cluster", why="no container engine here, and it is an example of a cluster"),
    Elsewhere(
        r"python3 -m venv |~/\S*/pip install \.|pip wheel |ln -sf ",
        _IMAGE,
        "images.ensure(images.CONTROLLER",
        "it installs packages; the wheel is built, and installed in the image",
        "docs/kubectl.md",
    ),
    Elsewhere(
        r"kube-(apiserver|controller-manager|scheduler) ",
        "test/integration/test_gang_backends.py",
        "OPTIONS.apiserver_flags",
        "these are flags to add; a control plane that has them is started",
        "docs/interop.md",
    ),
    Elsewhere(r"promtool |tfjob-controller run |curl ", _MONITORING, "line in COMMANDS if", pages="docs/monitoring.md"),
    Elsewhere(
        r"(?s)for pod in .*/proxy/",
        "test/e2e/test_production.py",
        "run_all(shell, ASKED)",
        "it sends requests to running pods",
    ),
    Elsewhere(r"(?!docker)", "test/e2e/test_production.py", "commands(PAGE)", "real nodes", "docs/production.md"),
    Elsewhere(
        "",
        "test/e2e/test_dashboard_deployment.py",
        "section(PAGE, HEADING)",
        "the component is installed first, on real nodes",
        "docs/dashboard.md",
    ),
    Elsewhere(
        "",
        "test/integration/test_trainer_migration.py",
        "section(PAGE, HEADING)",
        "Kubeflow Trainer is installed first, and its release is downloaded",
        "docs/trainjob-migration.md",
    ),
    Elsewhere("", "test/e2e/test_first_hour.py", "commands(PAGE)", "programs print and fail", "docs/first-hour.md"),
    Elsewhere(
        r"python manifests/samples/gang_of_pods.py ",
        "test/integration/test_gang_sample.py",
        '"gang_of_pods.py"',
        "it needs the gang scheduler",
    ),
    Elsewhere(r"export KUBECONFIG=…", why="the path is the reader's; tests set it"),
)

# A test runs this page on real nodes unchanged. Commands that other pages repeat are not run a second time.
_WHOLE = "docs/production.md"
_REPEATED = Elsewhere("", "test/e2e/test_production.py", "commands(PAGE)", f"it stands in {_WHOLE} too")
_REPEATING = ("docs/upgrade.md", "docs/high-availability.md")


def claim_on(command: Command) -> Elsewhere | None:
    """Returns the entry for the command; None if the common test runs it."""
    entry = next((entry for entry in ELSEWHERE if entry.takes(command)), None)
    return _REPEATED if entry is None and _is_repeated(command) else entry


def _is_repeated(command: Command) -> bool:
    return command.page in _REPEATING and command.text in {repeated.text for repeated in commands(_WHOLE)}
