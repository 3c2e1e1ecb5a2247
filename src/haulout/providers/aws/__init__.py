"""AWS maintenance: EC2 scheduled events, an SQS queue, and the instance metadata service.

- `instance_events`: what AWS reports about one instance, independent of the service that reports it.
- `instance_status`: parses the response of DescribeInstanceStatus. Pure.
- `sqs_messages`: parses messages of the queue, also those of AWS Health. Pure.
- `correlation`: finds the notice for an event: two services name the same maintenance differently. Pure.
- `notice_writer`: writes events that change a notice.
- `api`: the AWS calls in use, as protocols.
- `instance_status_poller`: polls EC2 for all nodes, and at once for instances that a message names.
- `sqs_reader`: reads the queue; a message is deleted when its notices exist.
- `lifecycle_actions`: keeps instances that Auto Scaling terminates until their nodes are empty; finds the hooks of
  terminations that only an agent reported.
- `node_index`: the nodes of an instance, its private DNS names and addresses, and which instances are managed.
- `event_source`: combines the above, and moves a scheduled event to another time.
- `boto`: the calls through boto3; `credentials` reads region and keys.
- `settings`: the configuration, also from the variables of aws-node-termination-handler; also that of the agent.

For `haulout agent`, on each node:

- `imds`: the calls of the instance metadata service (IMDSv2).
- `imds_event_source`: parses its documents, and writes the notices of its node.

All state is in the notices.
"""
