"""Node drains: which pods leave, in which order, how they are evicted, what blocks them and why."""
