"""Pictures of worlds: from above, and in three dimensions."""
