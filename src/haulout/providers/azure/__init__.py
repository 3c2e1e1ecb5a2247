"""Azure as an event source: the Scheduled Events of the machine that an agent runs on.

- `imds` calls the Instance Metadata Service, `scheduled_events` parses its documents;
- `event_source` polls it, writes the notices of its node, and begins an event early once all its machines are ready;
- `settings`: the configuration.
"""
