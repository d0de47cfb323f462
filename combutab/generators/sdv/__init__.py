"""TabFlow, CTGAN and TVAE as SDV's single-table synthesizers; needs the extra ``sdv``.

Nothing of combutab imports it: whoever wants it loads SDV.
"""

from combutab.generators.sdv._synthesizers import (
    CTGANSynthesizer,
    TabFlowSynthesizer,
    TVAESynthesizer,
)

__all__ = ["CTGANSynthesizer", "TVAESynthesizer", "TabFlowSynthesizer"]
