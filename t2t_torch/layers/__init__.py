"""Layers shared by several models."""
