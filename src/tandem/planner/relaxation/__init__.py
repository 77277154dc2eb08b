"""Linear programmes over shares: what no placement of a kind can exceed."""
