"""The generated files of the Helm chart in manifests/helm; `make generate` writes them.

The templates are written by hand: `test_helm_chart.py` compares what they render with the overlays and components of
kustomize. Generated are copies of manifests that the chart installs as they are, and what follows from its values.
"""
