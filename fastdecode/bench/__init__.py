"""The benchmark on the user's own images: ``python -m fastdecode.bench [PATH ...]``.

`files` loads the images, `check` compares pixels, `run` measures, `figures` turns times into
numbers, `tables` and `report` print. Nothing in the rest of the package imports this.
"""
