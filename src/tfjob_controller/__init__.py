"""A Kubernetes operator that runs distributed training jobs."""
