"""`shapeshift report`: everything that was reproduced, as one page that needs nothing else."""
