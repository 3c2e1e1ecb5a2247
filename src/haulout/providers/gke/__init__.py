"""GKE maintenance from labels of nodes: no agent, no permissions in Google Cloud, and no requests to it.

- `event_source` parses the labels, writes notices, and asks GKE to begin early;
- `settings`: the configuration.
"""

SOURCE = "gke"  # the value of `spec.source` in its notices
