"""Where text comes from: files, archives and downloads, the hub, sacreBLEU's test sets."""
