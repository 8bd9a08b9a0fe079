"""What each framework needs so that its processes find each other: one small module per framework, and a registry.

Pure: a framework answers from the `Setting` of a job alone. It knows no API server, no plan, and no other framework.
docs/trainjob-frameworks.md tells how to add one from a package of one's own.
"""
