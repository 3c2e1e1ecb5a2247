"""Nodes of Kubernikus, the Kubernetes service on OpenStack: which kubelets are old, and servers that are to be deleted.

It does what the SAP maintenance-controller does with `--enable-kubernikus-maintenance`, by the same labels:

- `cloud.sap/kubelet-needs-update` says whether a node's kubelet has another version than the API server
(`kubelet_version`).
- `cloud.sap/delete-node=true` is an order: the node is cordoned and drained, and its server deleted (`decision`). The
  cloud's controller then removes the Node, and Kubernikus makes another server in its place.

Kubernikus stops servicing nodes itself while any of them has a profile of the maintenance-controller: that takes
nothing from here.

Everything that a successor needs is on the Node: the order, our mark on its cordon, and which server is to be deleted,
which is written down before that is done.
"""
