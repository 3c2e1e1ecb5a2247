"""Pure building blocks: time, durations and small languages. Nothing in this package talks to a cluster."""
