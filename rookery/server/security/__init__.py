"""Who gets in, with what, and how much of it: tokens, tickets, the guard in front of every door."""
