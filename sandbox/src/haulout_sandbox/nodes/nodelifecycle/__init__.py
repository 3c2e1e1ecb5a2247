"""The node lifecycle controller: taints nodes that do not report, and evicts their pods."""
