"""`haulout top`: the fleet in the terminal, from the API of an operator."""
