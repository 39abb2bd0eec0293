"""Families: what a problem of each kind is made of, in one file each."""
