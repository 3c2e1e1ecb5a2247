"""What `haulout notice` does: announces maintenance, shows what is announced, and calls it off."""
