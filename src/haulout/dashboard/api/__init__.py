"""The versioned JSON API under `/api/v2`, for the dashboard and `haulout top`."""
