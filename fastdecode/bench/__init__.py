"""The benchmark on the user's own images: ``python -m fastdecode.bench [PATH ...]``.

`files` finds the images, and `run` plans what is measured and has it done by `_workers`, a process
for each backend, which also `check` the pixels; `on_device` does so for devices. `stats` makes of
the times a `result`. All the rest says what is in it: `summary` in sentences and `text` in figures,
for `report` (with `tables`) in the terminal and `html` (with `charts`) on a page; `compare` takes
two results, and `ranking` keeps one for `decode`.
"""
