"""Hosts of the local region: small machines that run scripts, with EBS-like volumes and a network."""
