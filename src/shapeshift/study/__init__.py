"""The papers' tables and figures, each a study that one command makes: `shapeshift reproduce`."""
