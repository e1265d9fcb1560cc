"""The journal read as what became of every message: events, life cycles, balance, hash chain. No broker needed."""
