"""How a network is computed: types of number, compiled layers, several processes."""
