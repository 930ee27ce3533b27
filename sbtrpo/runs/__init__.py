"""What a run leaves on the disk, and what can be made of it."""
