"""Builds pod templates: the runtime's, a TrainJob's overrides, initializers and exporters, the default server.

Pure. It may import `api` and the contract of frameworks, which in turn use `merge.py`.
Start with `merge.py` (how templates are combined), then `trainjob.py` (the pods of one role) and `workspace.py` (where
datasets and models are, and who fetches and exports them).
"""
