"""What a job is compiled into: the children that it should have, and the rules that they run by.

This package may import the API's types and the framework contract; it knows neither a cluster nor a status. A kind is
compiled by a module of its own. Start reading with `model.py`.
"""
