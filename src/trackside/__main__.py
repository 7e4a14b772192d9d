"""Lets `python -m trackside` do what `trackside` does."""

from trackside.cli.main import run

if __name__ == "__main__":
    run()
