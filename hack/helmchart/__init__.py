"""The Helm chart in manifests/helm, generated from the kustomize base and its components; `make generate` writes it.

`kustomize` reads the kustomizations, `patches` turns a component's patches into conditions, `places` inserts values,
`emit` writes templates, and `values` is the list of all values. Start reading in `chart`.
"""
