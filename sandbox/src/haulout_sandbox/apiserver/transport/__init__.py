"""The in-process transport to the API server, with faults that can be injected."""
