"""The backends, one module per library. `fastdecode.registry` lists them and imports each lazily.

The folder is not called ``backends``, because importing it would hide the function of that name.
"""
