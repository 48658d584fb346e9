"""Measure how fast backends decode here: `fastdecode bench`.

`_run` is the engine. Child processes (`_processes`) decode in turns and are timed; `_check`
compares their pixels, and `_cases` turns their times into a `result`. `_report` prints what a
result says, and `_html` draws it.
"""
