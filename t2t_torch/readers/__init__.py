"""Readers of raw data files, by format; `formats.open_records` opens all of them."""
