"""Translation over HTTP: a JSON API that batches sentences, and a page to compare runs by hand."""
