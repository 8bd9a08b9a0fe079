"""A plan of each kind of the registry, for rules that hold for all of them: a line for each kind."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.clusterinmemory import plan_of
from helpers.kubeflowworld import kubeflow_plan
from helpers.manifests import master, parameter_servers
from helpers.trainworld import train_plan
from tfjob_controller.jobs.plan.model import Plan

PLANS: Mapping[str, Plan] = {
    "tfjob": plan_of(master(), parameter_servers(1)),
    "trainjob": train_plan(labels={"team": "a"}),
    "kubeflow-trainjob": kubeflow_plan(),
}
