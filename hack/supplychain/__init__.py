"""Checks dependencies, and the tree for credentials: `python -m supplychain`."""
