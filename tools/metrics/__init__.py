"""The catalogue of all metrics, and what is generated from it: reference tables, alerts, the Grafana dashboard."""
