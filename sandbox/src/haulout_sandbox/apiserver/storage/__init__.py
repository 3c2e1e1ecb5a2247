"""The store: one revision counter, every write remembered, watches."""
