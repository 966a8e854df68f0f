"""The console script ``raydt``: runs the command line of this installation, whatever stands on the import path."""


def main() -> None:
    """Run the command line of this process."""
    from raydt.installation import claim

    claim()
    from pipelines.cli import main

    main()
