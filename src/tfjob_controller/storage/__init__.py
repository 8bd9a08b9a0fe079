"""Datasets and models from and to where they are kept. Knows nothing of Kubernetes."""
