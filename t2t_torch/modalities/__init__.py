"""How each kind of feature enters and leaves a network."""
