"""The one place that wires everything: what runs together in one process, and how it ends."""
