"""Proposers: for each kind of problem, the columns of a table that it may be learnt from."""
