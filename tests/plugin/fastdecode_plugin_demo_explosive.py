"""A backend that is broken: its module cannot be imported."""

raise RuntimeError("this plugin was built for another machine")
