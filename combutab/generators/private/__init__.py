"""Generators whose fit is differentially private: the mechanisms and their ledger.

The rows of a table are read by ``_mechanisms`` alone, which adds the noise and charges the ledger.
"""
