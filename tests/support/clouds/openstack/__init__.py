"""OpenStack as far as nodes go: Keystone gives tokens, Nova has servers, and a pool of them is a cluster's nodes.

    cloud = OpenStackCloud(clock)
    server = cloud.boot("node-1")
    await cloud.servers("node-1")           # Nova matches names as patterns: `node-10` is found, too
    await cloud.delete(server)              # gone some seconds later

`OpenStackCloud` answers calls in this process; `http_server` has it speak the wire protocols, for openstacksdk.
`NodePool` is the cloud's own controller and Kubernikus' in one: servers become nodes, and those that are deleted are
replaced.
"""

from support.clouds.openstack.cloud import OpenStackCloud
from support.clouds.openstack.node_pool import NodePool, Paces

__all__ = ["NodePool", "OpenStackCloud", "Paces"]
