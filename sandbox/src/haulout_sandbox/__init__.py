"""A Kubernetes cluster in one process, without sockets or threads, on real or simulated time."""

__version__ = "0.1.0.dev0"  # the version of Haulout; `make reference` writes it
