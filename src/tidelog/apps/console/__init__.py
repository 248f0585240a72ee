"""The web console: live state of a cluster, its history, and stories, in a browser.

One collector thread fetches the state of every broker (`collector.py`); the pages are views of its
last sample (`resources.py`), pushed by Server-Sent Events when they change (`live.py`). A page of
an earlier moment is the same view of a sample that the history store returns (`recorder.py`).
"""
