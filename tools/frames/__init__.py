"""Pictures of frames: exchanges of our client with our broker, recorded as they happen, and drawn."""
