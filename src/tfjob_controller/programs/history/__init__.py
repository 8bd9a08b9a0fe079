"""Keeps a history of jobs that have ended (`client/history`), for the leading controller.

`recorder.py` decides what is recorded and when, `contents.py` makes a record of what the API server has, `logs.py`
reads the ends of logs, and `namespaceindex.py` knows what is kept of a namespace and what is removed next. Start with
`recorder.py`.
"""
