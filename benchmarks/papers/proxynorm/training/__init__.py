"""Training: does Proxy Normalization make layer norm match batch norm?"""
