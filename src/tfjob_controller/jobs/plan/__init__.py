"""Plans, into which jobs are compiled: the children that a job should have, and the rules by which they run.

This package may import the API's types and the framework contract; it knows neither a cluster nor a status. A kind is
compiled by a module of its own. Start reading with `model.py`.
"""
