"""Numbers for Prometheus: all metrics there are, and the reference, alerts and dashboard that are made from them."""
