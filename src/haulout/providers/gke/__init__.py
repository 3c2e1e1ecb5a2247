"""What GKE says about maintenance by labels of its nodes: no agent, no right in Google Cloud, no request to it.

- `labels` says what they mean. Pure;
- `event_source` keeps notices true to them, and has maintenance begin early;
- `settings` are what can be set.
"""

SOURCE = "gke"  # what `spec.source` of its notices says
