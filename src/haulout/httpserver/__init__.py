"""HTTP infrastructure of all ports: listener, connection limits, serving certificates, health probes, metrics."""
