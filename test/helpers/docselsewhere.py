"""The commands of the docs that test_docs_commands.py does not run: which test runs each one, or why none can.

It runs all others unchanged, page by page. test/unit/test_docscommands.py checks each entry: the named test exists and
contains `words`, and the recipe of a make target runs `module`.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass

from helpers.docscommands import Command, commands

_DEMO = "test/e2e/test_demo.py"
_IMAGE = "test/integration/test_image.py"
_MONITORING = "test/integration/test_monitoring_docs.py"
_BENCHES = "test/perf/test_benches.py"
_LOCAL = "test/e2e/test_cluster_up.py"


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


@dataclass(frozen=True, slots=True)
class Target:
    """A make target: a test runs `module` of its recipe (as for `python -m`), or `why` is the reason against it."""

    name: str
    test: str = ""
    words: str = ""
    module: str = ""
    why: str = ""


def _bench(name: str) -> Target:
    return Target(f"bench-{name}", _BENCHES, f'"{name}"', f"bench.{name}")


# These targets take minutes, so a test runs their module with other arguments.
TARGETS = (
    Target("verify", ".ci/run", "make verify", why="it is the other half of what CI runs"),
    Target("test", ".ci/run", "make test", why="it runs this test"),
    Target("test-all", why="it runs this test, and many more that take long"),
    Target("unit", ".ci/run", "make test", why="it is a part of `make test`"),
    Target("unit-pythons", ".ci/run", "make test", why="it runs the unit tests again, with each Python that is there"),
    Target("check", "test/unit/test_moduletests.py", "main([names, prepare, tests]", "moduletests"),
    Target("demo", _DEMO, 'module: str = "demo"', "demo"),
    Target("demo-trainjob", _DEMO, 'start("trainjob")', "demo trainjob"),
    Target("demo-preemption", "test/e2e/test_demo_preemption.py", 'start_demo("demo", "preemption"', "demo preemption"),
    Target("demo-resume", "test/e2e/test_demo.py", 'start("resume")', "demo resume"),
    Target("demo-elastic", "test/e2e/test_demo.py", 'start("elastic")', "demo elastic"),
    Target("demo-transformers", "test/e2e/test_demo.py", 'start("transformers")', "demo transformers"),
    Target("demo-dashboard", "test/e2e/test_demo.py", 'start("dashboard")', "demo dashboard"),
    Target("screenshots", "test/e2e/test_demo.py", 'module="demo.screenshots"', "demo.screenshots"),
    Target(
        "demo-monitoring",
        "test/e2e/test_prometheus.py",
        "objects(",
        "demo monitoring",
        "it builds Prometheus for minutes",
    ),
    Target("demo-gang", "test/integration/test_demo_gang.py", 'start_demo("demo", "gang"', "demo gang"),
    Target("demo-autoscale", "test/e2e/test_demo_autoscale.py", 'start_demo("demo", "autoscale"', "demo autoscale"),
    Target("chaos", "test/integration/test_chaos.py", '"-m", "lab.chaos"]', "lab."),
    Target("attack", "test/adversarial/test_attack.py", '"-m", "lab.attack"]', "lab.attack"),
    Target("chaos-checkpoint", "test/e2e/test_checkpoint_chaos.py", '"-m", "lab.checkpoints"]', "lab.checkpoints"),
    Target("chaos-gang", "test/integration/test_gang_chaos.py", '"-m", "lab.gangs"]', "lab.gangs"),
    Target("record-lives", module="recordlives", why="it would write recordings; unit tests read those that there are"),
    Target("simulate", "test/unit/simulator/test_command.py", '"--grid"', "tfjob_controller simulate --grid"),
    *(_bench(each) for each in ("create", "cache", "sync", "watch", "filter", "placement", "gang")),
    Target("soak", "test/integration/test_soak.py", '"-m", "lab.soak"]', "lab.soak"),
    Target("cluster-up", _LOCAL, "commands(PAGE)", "localcluster up"),
    Target("cluster-down", _LOCAL, "commands(PAGE)", "localcluster down"),
    Target("cluster-status", _LOCAL, "commands(PAGE)", "localcluster status"),
    Target("node-kill", _LOCAL, "inline_commands(PAGE)", "localcluster node-kill"),
    Target("node-start", _LOCAL, "inline_commands(PAGE)", "localcluster node-start"),
    Target("image", _LOCAL, "commands(PAGE)", "localcluster image"),
    Target("format", ".ci/run", "make verify", why="it writes to the tree; `make verify` runs the same programs"),
    Target("generate", "hack/verify", "-m generate --check", "generate", "it writes to the tree"),
    Target("docs", "hack/verify", "-m docsite", "docsite"),
    Target("interop", "test/unit/interop/test_record.py", "rules_of(SEEN)", "interop", "it builds Kueue for minutes"),
    Target("lock", why="it looks up the newest versions, and writes to the tree"),
)

ELSEWHERE = (
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
        r"(?s)for pod in .*/proxy/", "test/e2e/test_production.py", "in ASKED", "it sends requests to running pods"
    ),
    Elsewhere(r"(?!docker)", "test/e2e/test_production.py", 'blocks("sh")', "real nodes", "docs/production.md"),
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
_REPEATED = Elsewhere("", "test/e2e/test_production.py", 'blocks("sh")', f"it stands in {_WHOLE} too")
_REPEATING = ("docs/upgrade.md", "docs/high-availability.md")


def target_of(command: Command) -> str:
    """Returns the target of a make command; "" for other commands, and for make alone."""
    words = command.text.partition("#")[0].split()
    named = [word for word in words[1:] if "=" not in word and not word.startswith("-")]
    return named[0] if words[0] == "make" and named else ""


def claim_on(command: Command) -> Elsewhere | Target | None:
    """Returns the entry for the command; None if the common test runs it."""
    name = target_of(command)
    if name:
        return next((each for each in TARGETS if each.name == name), None)
    found = next((each for each in ELSEWHERE if each.takes(command)), None)
    return _REPEATED if found is None and _is_repeated(command) else found


def _is_repeated(command: Command) -> bool:
    return command.page in _REPEATING and command.text in {each.text for each in commands(_WHOLE)}
