"""The history: what the controller keeps of jobs that have ended, in a directory or in S3.

`filesystems.py` reaches the storage, `store.py` has the layout, `record.py` what a record has, and `reading.py` what
people and programs read. The controller writes it (`programs/history`). Start with `store.py`.
"""

from tfjob_controller.client.history.reading import History
from tfjob_controller.client.history.record import HistoryError

__all__ = ["History", "HistoryError"]
