"""History and timeline of nodes, as the API answers them."""
