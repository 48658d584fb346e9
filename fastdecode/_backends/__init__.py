"""The backends, one module per library, and the choice between them.

`registry` lists them and imports each lazily; `selection` orders them.

The folder is not called ``backends``, because importing it would hide the function of that name.
"""
