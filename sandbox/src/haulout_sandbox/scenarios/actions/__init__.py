"""What happens in scenarios, by what it happens to."""
