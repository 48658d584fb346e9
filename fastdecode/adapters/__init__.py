"""The backends, one library a file; `fastdecode.registry` knows them by name and loads them lazily.

The folder is not called ``backends``: importing it would then hide the function of that name.
"""
