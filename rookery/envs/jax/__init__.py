"""JAX-native environments (Gymnax, Pgx): the whole rollout is one compiled call."""
