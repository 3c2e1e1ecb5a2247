"""What all HTTP ports share: listener, connection limits, serving certificates, health probes, metrics."""
