"""All metrics there are, and what is made from them: tables of the reference, alerts, the Grafana dashboard."""
