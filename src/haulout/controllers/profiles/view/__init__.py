"""What checks and triggers see of the cluster: informers, and one view per node."""
