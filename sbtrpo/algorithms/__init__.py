"""The methods: one file each, on shared trust-region and critic code."""
