"""A Kubernetes cluster in one process: no sockets, no threads, on real or on simulated time."""

__version__ = "0.1.0.dev0"  # that of Haulout, written by `make reference`
