"""`shapeshift report`: all results on one self-contained page."""
