"""The benchmark on the user's own images: ``python -m fastdecode.bench [PATH ...]``.

`files` finds the images, `plan` says what is measured, and `run` has it done: by a `team` of
processes, in which a `worker` answers with what `check` finds and `protocols` or `loader` times.
`figures` and `summary` make of that a `result`, which all the rest prints, draws or compares.
Nothing in the rest of the package imports this.
"""
