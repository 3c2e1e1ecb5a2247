"""A simulation of Metal3: BareMetalHosts that are provisioned and powered off and on.

    rack = Rack(clock)
    management.start_program(Metal3(management.client("metal3"), rack, random=Random(1)).run(), name="metal3")

A host is a BareMetalHost and a machine in the `Rack`. With `Metal3InfrastructureProvider`, Machines of Cluster API run
on hosts: the machine then has a Node, which becomes silent when its host is powered off.
"""
