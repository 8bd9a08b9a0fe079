"""The admission loop, which is one thread: the queue, reservations, reassignment of members, and resize requests.

It may import permit's and binding's types, status and state. Start reading with loop.py.
"""
