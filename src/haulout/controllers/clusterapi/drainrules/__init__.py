"""MachineDrainRules of Cluster API, copied to the Nodes that they apply to."""
