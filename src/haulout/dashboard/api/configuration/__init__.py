"""The configuration in the API: a redacted view, an edit, and its preview."""
