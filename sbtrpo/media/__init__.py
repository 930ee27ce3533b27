"""Pictures and films of policies."""
