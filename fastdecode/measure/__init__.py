"""Measuring how fast backends decode here: `calibrate` for `decode` to go by, `bench` for people.

Child processes decode while they are timed (`_workers`, `_device_worker`), in turns. `_calibrate`
and `_race` make a ranking of that, `_run` and `_stats` a `result`, `_device` either for a device.
All else says what is in a result: `_summary` in sentences and `_text` in figures, for `_report` in
the terminal and `_html` on a page; `_compare` takes two. Nothing is imported here: `compare` needs
neither NumPy nor what decodes.
"""
