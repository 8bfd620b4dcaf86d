"""Provision many hosts: an inventory in; hosts that are put right batch by batch, each gated by its health, out."""
