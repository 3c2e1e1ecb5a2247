"""What people have done from the dashboard: each of it a write to the API server, in their name."""
