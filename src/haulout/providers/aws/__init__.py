"""AWS maintenance: EC2 scheduled events, an SQS queue, and the instance metadata service.

- `instance_events`: what AWS reports about one instance, independent of the service that reports it.
- `instance_status`: parses the response of DescribeInstanceStatus. Pure.
- `sqs_messages`: parses messages of the queue. Pure; `health_events` for those of AWS Health.
- `correlation`: finds the notice for an event: two services name the same maintenance differently. Pure.
- `notice_writer`: writes events that change a notice.
- `api`: the AWS calls in use, as protocols.
- `instance_status_poller`: polls EC2 for all nodes, and at once for instances that a message names.
- `sqs_reader`: reads the queue; a message is deleted when its notices exist.
- `lifecycle_actions`: keeps instances that Auto Scaling terminates until their nodes are empty.
- `termination_hooks`: finds the lifecycle hooks of terminations that only an agent reported.
- `network_identities`: private DNS names and addresses of instances, for nodes without a provider ID.
- `node_index`, `instance_tags`: the nodes of an instance, and which instances are managed.
- `reschedule`: moves a scheduled event to another time.
- `event_source`: combines the above.
- `boto`: the calls through boto3; `credentials` reads region and keys.
- `settings`: the configuration, also from the variables of aws-node-termination-handler.

For `haulout agent`, on each node:

- `imds`: the calls of the instance metadata service (IMDSv2).
- `imds_events`: parses its documents. Pure.
- `imds_event_source`: combines them.
- `agent_settings`: the configuration.

All state is in the notices.
"""
