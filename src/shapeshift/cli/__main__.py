"""`python -m shapeshift.cli`: the command line where the `shapeshift` script is not installed."""

from shapeshift.cli import main

if __name__ == "__main__":
    main()
