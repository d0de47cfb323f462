"""What every package may use, and which uses none of them.

Modules here are imported by name, ``from combutab.core.rng import fold_in``; they are no part of
the public interface.
"""
