"""What a generated data set holds, in figures; `census.py` takes them all."""
