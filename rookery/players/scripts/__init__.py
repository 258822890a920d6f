"""Players that follow a rule: of any game, or of one."""
