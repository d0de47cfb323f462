"""What one hidden layer approximates: section 4.2 of the PLN paper."""
