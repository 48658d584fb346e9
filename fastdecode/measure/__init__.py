"""Measure how fast backends decode here: `fastdecode bench`.

`_run` is the engine. Child processes (`_processes`) decode in turns, are checked and timed; their
times become a `result`, which `_report` prints or draws.
"""
