"""The commands of the docs that test_docs_commands.py does not run: which test runs them, or why none can.

It runs all others unchanged, page by page. test/unit/test_docscommands.py checks that each named test exists, and reads
the recipes of the make targets that pages name.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass

from helpers.docs import Command, commands


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Commands of `pages` that begin with a match of `pattern`; `why` names the test that runs them, or the reason."""

    pattern: str
    why: str
    pages: str = "*"

    def takes(self, command: Command) -> bool:
        return fnmatch.fnmatch(command.page, self.pages) and re.match(self.pattern, command.text) is not None


ELSEWHERE = (
    Elsewhere(r"make\b", "the tests of the module that the recipe runs have arguments of their own"),
    Elsewhere(r"helm ", "test/integration/test_helm_release.py", "docs/install.md"),
    Elsewhere(
        r"docker (build|push|pull|tag|inspect|run|save)\b",
        "no Docker here; buildah builds the Dockerfile for test/integration/test_image.py",
    ),
    Elsewhere(r"for n in |kill \$loops", "it loads the machine on purpose, to search for a race", "docs/testing.md"),
    Elsewhere(r"kind create cluster", "no container engine here, and it is an example of a cluster"),
    Elsewhere(
        r"python3 -m venv |~/\S*/pip install \.|pip wheel |ln -sf ",
        "it installs packages; the wheel is built for, and installed in, the image of test/integration/test_image.py",
        "docs/kubectl.md",
    ),
    Elsewhere(
        r"kube-(apiserver|controller-manager|scheduler) ",
        "flags to add; test/integration/test_gang_backends.py starts a control plane that has them",
        "docs/interop.md",
    ),
    Elsewhere(
        r"promtool |tfjob-controller run |curl ", "test/integration/test_monitoring_docs.py", "docs/monitoring.md"
    ),
    Elsewhere(r"(?s)for pod in .*/proxy/", "it sends requests to running pods: test/e2e/test_production.py"),
    Elsewhere(r"(?!docker)", "on real nodes: test/e2e/test_production.py", "docs/production.md"),
    Elsewhere("", "on real nodes: test/e2e/test_dashboard_deployment.py", "docs/dashboard.md"),
    Elsewhere(
        "",
        "its first commands download Kubeflow Trainer: test/integration/test_trainer_migration.py",
        "docs/trainjob-migration.md",
    ),
    Elsewhere("", "programs print and fail: test/e2e/test_first_hour.py", "docs/first-hour.md"),
    Elsewhere(
        r"python manifests/samples/gang_of_pods.py ",
        "with the gang scheduler: test/integration/test_gang_sample.py",
    ),
    Elsewhere(r"export KUBECONFIG=…", "the path is the reader's; tests set it"),
)

# A test runs this page on real nodes unchanged. Commands that other pages repeat are not run a second time.
_WHOLE = "docs/production.md"
_REPEATED = Elsewhere("", f"it stands in {_WHOLE} too")
_REPEATING = ("docs/upgrade.md", "docs/high-availability.md")


def claim_on(command: Command) -> Elsewhere | None:
    """Returns the entry for the command; None if the common test runs it."""
    entry = next((entry for entry in ELSEWHERE if entry.takes(command)), None)
    return _REPEATED if entry is None and _is_repeated(command) else entry


def _is_repeated(command: Command) -> bool:
    return command.page in _REPEATING and command.text in {repeated.text for repeated in commands(_WHOLE)}
