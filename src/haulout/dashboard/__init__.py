"""The dashboard: an HTTP API, authentication, live updates, and static files."""
