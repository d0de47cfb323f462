"""CTGAN and TVAE as SDV's single-table synthesizers; needs the extra ``sdv``."""

from combutab.generators.sdv._synthesizers import CTGANSynthesizer, TVAESynthesizer

__all__ = ["CTGANSynthesizer", "TVAESynthesizer"]
