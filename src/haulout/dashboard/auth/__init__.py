"""Authentication and authorization of dashboard users, and rate limits."""
