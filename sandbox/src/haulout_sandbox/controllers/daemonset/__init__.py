"""The DaemonSet controller: one pod on each node where it belongs."""
