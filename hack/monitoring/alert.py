"""An alert: the rule, and the text of its runbook."""

from __future__ import annotations

from dataclasses import dataclass

# `job` of a target, on both ways of scraping: the label app.kubernetes.io/name of the pods.
CONTROLLER, GANG_SCHEDULER = "tfjob-controller", "gang-scheduler"
BOTH = f'job=~"{CONTROLLER}|{GANG_SCHEDULER}"'
OF_CONTROLLER = f'job="{CONTROLLER}"'
OF_GANG_SCHEDULER = f'job="{GANG_SCHEDULER}"'

# All replicas: `kubectl logs deploy/NAME` shows one of them, which need not lead.
LOGS_OF_CONTROLLER = "kubectl -n tfjob-system logs -l app=tfjob-controller"
LOGS_OF_GANG_SCHEDULER = "kubectl -n tfjob-system logs -l app=gang-scheduler"
CRITICAL, WARNING = "critical", "warning"


@dataclass(frozen=True, slots=True)
class Alert:
    """One name, and usually one rule: of several `exprs` each is a rule, with a label `kind` of `kinds`.

    `lasting` is Prometheus' `for`. `summary` may hold templates; `means`, `look` and `act` (lines of
    Markdown) are for the runbook. `queries` are pairs of a title and a query; tests run them.
    """

    name: str
    exprs: tuple[str, ...]
    lasting: str
    severity: str
    summary: str
    means: str
    look: tuple[str, ...]
    act: tuple[str, ...]
    queries: tuple[tuple[str, str], ...] = ()
    kinds: tuple[str, ...] = ()

    @property
    def runbook(self) -> str:
        """Its page's path from the project's root."""
        return f"docs/runbooks/{self.name}.md"


@dataclass(frozen=True, slots=True)
class Group:
    """Alerts that Prometheus evaluates one after the other."""

    name: str
    alerts: tuple[Alert, ...]
