"""The jobs of Kubeflow's training-operator (kubeflow.org/v1): one kind for each framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfjob_controller.kube.meta import Object, Resource

# Clients do not know these kinds: a TFJob of v1alpha1 has the same word.
RESOURCES: tuple[Resource[Object], ...] = ()
