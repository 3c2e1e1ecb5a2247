"""What makes packages, reference pages, the docs site, alerts and the Grafana dashboard. Never shipped."""
