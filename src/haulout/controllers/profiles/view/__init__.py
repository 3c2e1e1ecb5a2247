"""The view of the cluster that plugins get: informers, indexes and snapshots."""
