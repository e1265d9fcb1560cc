"""Other people's APIs on our client, so that programs that were written for them run again."""
