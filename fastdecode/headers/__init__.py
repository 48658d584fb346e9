"""One module for each file format: its ``parse(data)`` reads the header bytes, never pixels."""
