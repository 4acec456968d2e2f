"""``python -m trainplan``."""

from __future__ import annotations

from trainplan.cli import app

if __name__ == "__main__":
    app(prog_name="trainplan")
