"""Authentication and authorization: tokens, RBAC, access reviews."""
