"""``python -m fastdecode.bench``: the benchmark of `fastdecode.measure`."""
