"""Request handlers, from the path to the response."""
