"""``combutab synth`` and ``combutab sample``: options, training, conditions, report.

Used by the command alone.

Nothing is imported here: ``combutab --help`` loads no heavy library.
"""
