"""TFJobs (kubeflow.org/v1alpha1). Start reading with `kind.py`."""
