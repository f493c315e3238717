"""``agentflow runs``: earlier runs, listed, shown, compared and reported."""
