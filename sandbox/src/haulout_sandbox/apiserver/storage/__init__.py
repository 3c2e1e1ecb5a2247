"""The store: one revision counter, a record of every write, and watches."""
