"""A simulated OpenStack: Keystone issues tokens, Nova has servers, and a pool of servers provides the nodes.

    cloud = OpenStackCloud(clock)
    server = cloud.boot("node-1")
    await cloud.servers("node-1")           # Nova matches names as patterns: `node-10` matches, too
    await cloud.delete(server)              # deleted some seconds later

`OpenStackCloud` answers calls in this process; `http_server` serves the wire protocols for openstacksdk. `NodePool`
combines the cloud controller manager and Kubernikus: servers become nodes, and deleted servers are replaced.
"""

from support.clouds.openstack.cloud import OpenStackCloud
from support.clouds.openstack.node_pool import NodePool, Paces

__all__ = ["NodePool", "OpenStackCloud", "Paces"]
