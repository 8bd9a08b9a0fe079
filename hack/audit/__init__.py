"""Watches a cluster in which gangs are scheduled, from outside, and says what went wrong: see `audit.__main__`."""
