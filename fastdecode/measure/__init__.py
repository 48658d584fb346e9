"""Measure how fast backends decode here: `calibrate` for the automatic choice, `bench` for people.

Child processes (`_workers`, `_device_worker`) decode in turns and are timed. `_calibrate` and
`_race` make a ranking from the times, `_run` and `_stats` make a `result`, and `_device` makes both
for a device. The other modules present a result: `_summary` in sentences and `_text` in figures,
`_report` in the terminal and `_html` on a page. `_compare` compares two results. This module
imports nothing, because `compare` needs neither NumPy nor a decoder.
"""
