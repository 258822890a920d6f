"""The actor plays: it steps environments with the players in their seats and streams experience."""
