"""Builds pod templates: the runtime's, a TrainJob's overrides, initializers and exporters, the default server.

Pure. It may import `api` and the contract of frameworks, which in turn use `merge.py`.
Start with `merge.py` (how templates are combined), then `trainjob.py` (the pods of one role, where datasets and models
are, and which pods fetch and export them).
"""
