"""Watches a cluster in which gangs are scheduled, from outside, and reports violations: see `audit.__main__`."""
