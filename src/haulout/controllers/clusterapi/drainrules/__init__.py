"""MachineDrainRules of Cluster API, copied to an annotation of the Nodes that they apply to."""
