"""History and timeline of nodes in the API."""
