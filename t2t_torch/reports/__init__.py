"""A census told to people: on the terminal, and as a page with plots."""
