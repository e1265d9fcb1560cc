"""A broker, programs and everything between them in one thread and in virtual time, so that one seed repeats a failure.

`Simulation` is what users test their own programs in. Below it, `loops` has the time and the processes, `network` what
lies between them, `disk` what the broker writes to; acquit's own tests use these too.
"""
