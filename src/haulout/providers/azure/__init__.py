"""Azure as an event source: the Scheduled Events of the machine that an agent runs on.

- `imds` calls the Instance Metadata Service, `scheduled_events` parses its documents;
- `event_source` polls it, and writes the notices of its node;
- `early_start` checks whether all machines of an event are ready, so that it may begin early;
- `settings`: the configuration.
"""
