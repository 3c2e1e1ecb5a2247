"""The profiles controller: a configurable state machine per node that decides when maintenance starts and ends."""
