"""Data reports: dataset statistics on the terminal and as an HTML page with plots."""
