"""NodeMaintenance: take a node out of service by order of a user, and restore the node when the object is deleted."""
