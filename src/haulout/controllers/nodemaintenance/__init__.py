"""NodeMaintenance: a person's order to take a node out of service, and to give it back when the object is deleted."""
