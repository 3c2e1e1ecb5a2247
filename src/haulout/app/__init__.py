"""The composition root: wires all components of a process, and ends them in order."""
