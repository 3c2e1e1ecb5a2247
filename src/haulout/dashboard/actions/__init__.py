"""Actions of users in the dashboard: each is a write to the API server that impersonates the user."""
