"""The checks, one per module, named after their type: `hasLabel` is in `has_label`."""
