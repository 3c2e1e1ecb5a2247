"""Kubernikus nodes (Kubernetes on OpenStack): label outdated kubelets, and delete servers on order.

This package does what the SAP maintenance-controller does with `--enable-kubernikus-maintenance`, with the same labels:

- `cloud.sap/kubelet-needs-update` says whether a node's kubelet version differs from that of the API server
  (`kubelet_version`).
- `cloud.sap/delete-node=true` is an order: the node is cordoned and drained, and its server is deleted (`decision`).
  The cloud controller manager then removes the Node, and Kubernikus creates a replacement server.

Kubernikus does not service nodes itself while any of them has a profile of the maintenance-controller. This package
does not change that.

All state that a new leader needs is on the Node: the order, our cordon owner, and the ID of the server to delete, which
is written before the server is deleted.
"""
