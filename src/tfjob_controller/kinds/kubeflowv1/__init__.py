"""The jobs of Kubeflow's training-operator (kubeflow.org/v1): one kind for each framework."""
