"""Which activation, asked again: in strong recipes, and learned instead of chosen."""
