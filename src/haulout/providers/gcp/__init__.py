"""Google Cloud maintenance: from the metadata server of each machine, and from the Compute API.

- `upcoming_maintenance`: parses documents about a machine and its planned maintenance. Pure.
- `correlation`: finds the notice for a maintenance, and ends those that are no longer reported. Pure.
- `metadata_event_source`: the event source of `haulout agent`; the metadata server reports changes within seconds.
- `compute_api`: the calls of the Compute API, as a protocol and over plain HTTP.
- `tokens`: access tokens from the metadata server or a credentials file.
- `workload_identity_federation`: exchanges an external token for a Google access token.
- `compute_event_source`: the event source of the operator; it polls all machines of a project that are nodes, and
  asks Google to begin a maintenance early, once its node is empty.
- `http_client`: HTTP over aiohttp for the operator; the agent has a smaller client.
- `settings`: the configuration.

Both sources derive the same name for a maintenance, so that there is one notice whichever source reports it first. All
state is in the notices. No SDK is needed.
"""

SOURCE = "gcp"  # the value of `spec.source` in its notices
