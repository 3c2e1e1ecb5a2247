"""The way to a cluster over the network.

- `config` finds the way: `kubeconfig` files (read with line numbers by `kubeconfig_section`, understood by
`kubeconfig_entries`) or the pod's
  own service account;
- `credentials` and `exec_plugin` prove who we are, `tls` and `proxy` how we get there safely;
- `http` is the transport that uses all of it, and `aiohttp_errors` says in words why there was no answer.
"""
