"""The state machine of a profile: which state a node is in, and what is kept on the node between transitions."""
