"""Live updates of the dashboard: server-sent events to all subscribers."""
