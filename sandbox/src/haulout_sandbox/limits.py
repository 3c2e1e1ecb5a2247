"""Upper limits of a sandbox's settings: what one process can hold, and what names and addresses allow."""

MAX_NODES = 5_000
MAX_PODS_PER_NODE = 100  # a node has room for 110
MAX_ZONES = 26  # zones are named by letters
MAX_SPEED = 3_600  # one hour per second
