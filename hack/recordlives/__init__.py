"""`make record-lives`: records what the API server shows of pods and child Jobs, for each pair of inputs.

May import localcluster. Start reading in matrix.py, which lists the inputs; statuses.py has the format of the files.
"""
