"""Who looks at the dashboard, what they may see, and what they may do there."""
