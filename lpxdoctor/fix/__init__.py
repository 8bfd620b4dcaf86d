"""Put a host right: what was found in, a plan of playbooks and tags, and what became of it when it ran, out."""
