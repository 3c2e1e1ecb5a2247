"""`haulout notice`: announce maintenance, show notices, and cancel or end them."""
