"""`python -m shapeshift`: the command line, as `torchrun -m shapeshift` starts it, too."""

from shapeshift.cli import main

if __name__ == "__main__":
    main()
