"""Deep networks without normalisation: Tables 1 and 2 and Figure 8 of the PLN paper."""
