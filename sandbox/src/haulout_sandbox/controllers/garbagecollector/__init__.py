"""The garbage collector: deletes dependents whose owner is gone."""
