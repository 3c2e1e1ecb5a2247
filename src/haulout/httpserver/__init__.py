"""HTTP infrastructure of all ports: listener, connection limits, serving certificates, health probes, metrics.

It knows nothing of what is served. Everything that reaches a port may be hostile, including before authentication.
"""
