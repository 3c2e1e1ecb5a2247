"""The garbage collector: deletes dependents whose owners no longer exist."""
