"""What a run tells: numbers, curves, pages, bars."""
