"""The state machine of profiles: attached profiles, node drafts, and the annotations that keep state on the node."""
