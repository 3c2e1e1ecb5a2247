"""The versioned JSON API under `/api/v2`, which feeds the dashboard and `haulout top`."""
