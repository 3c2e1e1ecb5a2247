"""What support needs, in one archive: what is collected, what is struck out of it, and how it is packed."""
