"""Execution of a network: numeric precision, compiled layers, several processes."""
