"""The scheduler: filters, scores and binds."""
