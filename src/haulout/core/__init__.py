"""Pure building blocks: time, durations and the small languages. Nothing here talks to a cluster."""
