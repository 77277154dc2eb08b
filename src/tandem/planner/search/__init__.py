"""Which candidates there are, and the search among them."""
