"""The triggers, one per module, named after their type: `alterLabel` is in `alter_label`."""
