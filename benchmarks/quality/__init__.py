"""What a network learns from synthetic rows."""
