"""PrivateSynthesizer, a generator whose fit is differentially private: its mechanisms and model.

The rows of a table are read by mechanisms alone, which add noise and charge a ledger; generators
and ``combutab synth --epsilon`` use it.
"""

from combutab.generators.private._synthesizer import PrivateSynthesizer

__all__ = ["PrivateSynthesizer"]
