"""What AWS says about maintenance: EC2's scheduled events, a queue, and what each instance is told.

    readings    what was found to be said about an instance
    statuses    what DescribeInstanceStatus answers -> readings. Pure
    messages    the body of a message of the queue -> readings. Pure; `health_events` for those of AWS Health
    joining     which notice a reading is about: two services name the same maintenance differently. Pure
    desk        takes what is news into the inbox
    cloud       the calls that are made, as protocols
    polling     asks EC2 about all nodes every few minutes, and at once about instances that a message names
    queue       reads the queue; a message is deleted when its notices exist
    lifecycles  keeps instances that Auto Scaling is about to terminate until their nodes are empty
    termination_hooks   finds the lifecycle hooks of terminations that only an agent has told of
    identities  what EC2 calls instances in their network, for nodes without a providerID
    fleet, tags which nodes run on an instance, and which instances are ours
    moving      asks for another time
    source      all of it together
    boto        the calls, by boto3; `credentials` has the region and the keys
    settings    what is configured, also by the variables of aws-node-termination-handler

For `haulout agent`, on each node:

    metadata            the calls of the instance metadata service (IMDSv2)
    metadata_readings   what it answers -> readings. Pure
    metadata_source     all of it together
    agent_settings      what is configured

Nothing that matters is kept here: what is needed to go on stands in the notices.
"""
