"""Emptying nodes: which pods must leave, in what order, how they are asked, what they wait for and why."""
