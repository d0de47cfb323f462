"""Tables on the command line: files, their forms, names of columns, places for results.

Used by every sub-command.

Nothing is imported here: ``combutab --help`` loads no heavy library.
"""
