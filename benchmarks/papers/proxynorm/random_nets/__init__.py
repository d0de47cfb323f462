"""Random nets: do they collapse with layer norm, and does Proxy Normalization prevent it?"""
