"""How much of everything a sandbox may be asked for: what one process can hold, and what names and addresses allow."""

NODES = 5_000
PODS_PER_NODE = 100  # a node has room for 110
ZONES = 26  # named by letters
SPEED = 3_600  # an hour in a second
