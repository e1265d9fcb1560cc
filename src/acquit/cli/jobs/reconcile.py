"""``acquit pipeline reconcile`` for spark-submit."""

from acquit.cli.jobs import submit

if __name__ == "__main__":
    submit("reconcile")
