"""Builds pod templates from parts, for all kinds.

Pure. It may import `api`; frameworks and the kinds' own `podtemplate` modules use it. Start with `merge.py`, which
combines templates.
"""
