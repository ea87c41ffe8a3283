"""The papers' tables and figures, each an item that one command makes: `shapeshift reproduce`."""
