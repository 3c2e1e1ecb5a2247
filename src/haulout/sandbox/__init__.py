"""A Kubernetes cluster in one process: no sockets, no threads, on real or on simulated time."""
