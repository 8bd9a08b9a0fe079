"""Runs gangs during faults while an auditor watches: see `chaos.__main__`."""
