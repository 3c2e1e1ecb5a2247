"""Oracle Cloud Infrastructure: maintenance of instances, from a stream of events and from the Compute API.

- `maintenance_events`: parses messages and list entries. Pure.
- `api`: the OCI calls in use, as protocols.
- `correlation`: finds the notice for a message, and orders messages. Pure.
- `stream_consumer`: consumes the stream; an offset is committed only after its event became a notice.
- `compute_reconciler`: polls Compute for what the stream lost, moved or never reported.
- `event_source`: combines both, and moves maintenance to another time.
- `settings`: environment variables, including those of the OCI Node Maintenance Handler.
- `handler_cronjobs`: turns the CronJobs that the OCI Node Maintenance Handler left in a cluster into notices.
- `sdk`: the calls through Oracle's SDK.
"""

SOURCE = "oci"  # the value of `spec.source` in its notices
