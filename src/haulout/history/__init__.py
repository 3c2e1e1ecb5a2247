"""What happened to each node, who or what did it, and why: kept in the API server, bounded, oldest first out."""
