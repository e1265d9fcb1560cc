"""Messages come in.

`posting` takes them from links, and is the hot path; `reader` says what they are and where they go, `runs` takes those
together that came together. `shaping` reads what matters of them and writes what is ours around them, `templates`
spares the reading; `duplicates` tells those that come again, `limits` what has to give way.
"""
