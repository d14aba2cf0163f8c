"""What the greedy lexeme fallback costs: grammars, states, timed, counted, in memory."""
