#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.2.9"]
# ///
"""Tasks of a contributor, each in its own environment: ``nox``, or ``nox -s tests -- tests/unit/test_digest.py``."""

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and types."""
    session.install("-e", ".[dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the default suite, or the files named."""
    session.install("-e", ".[dev]")
    session.run("pytest", "-q", *(session.posargs or ("-n", "3", "--dist", "loadfile")))


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the site."""
    session.install("-e", ".[docs]")
    session.run("mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Build and check what a release uploads."""
    session.run(".ci/release", external=True)


if __name__ == "__main__":
    nox.main()
