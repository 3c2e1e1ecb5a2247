"""The configuration as the API answers it: a redacted view, an edit, and its preview."""
