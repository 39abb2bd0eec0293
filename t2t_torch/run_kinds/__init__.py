"""Kinds of run, each in one file: what the library does with the runs of a problem, of a trial."""
