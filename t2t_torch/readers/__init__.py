"""Files of raw data to records, a file for each format; `formats.open_records` opens them all."""
